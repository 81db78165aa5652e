"""Episodes as pictures: filmstrips with ghosts, grids of skills, one episode with its running return.

An episode is played once. Where the environment can draw any state of its physics, the states are kept and drawn
afterwards; elsewhere its own renderer makes the pictures on the way, which are then laid over each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.report.pictures import lettering
from cic.training.evaluation import Rollout, rollout

Picture = npt.NDArray[np.uint8]
Tick = Callable[[], object]
RATE = 15
"""Frames a second, about."""
ENDINGS = (".mp4", ".gif", ".webp")


@dataclass
class Take:
    """What was seen of each copy, so that its pictures can be made."""

    env: VectorEnv
    seen: Rollout
    size: tuple[int, int]
    """Width and height of a picture."""
    live: dict[int, list[Picture]] = field(default_factory=dict)
    """By step a picture of each copy, where states cannot be drawn."""

    def picture(self, copy: int, steps: Sequence[int], *, plain: bool) -> Picture:
        """The copy at the last of the steps, with ghosts of those before; after its end, as it ended."""
        last = int(self.seen.lengths[copy])
        steps = sorted({min(step, last) for step in steps})
        if self.env.draws_states:
            return self.env.draw([self.seen.physics[copy][step] for step in steps], *self.size, plain=plain)
        kept = np.array([step for step in sorted(self.live) if step <= last])  # later it is in another episode
        near = sorted({int(kept[np.abs(kept - step).argmin()]) for step in steps})
        return _blend([self.live[step][copy] for step in near])

    def running(self, copy: int, task: str, step: int) -> float:
        """What the task has paid up to a step."""
        return float(self.seen.rewards[task][:step, copy].sum())


def play(
    agent: Agent,
    env: VectorEnv,
    skills: Array,
    seeds: Sequence[int],
    size: tuple[int, int],
    steps: Iterable[int],
    tick: Tick = lambda: None,
) -> Take:
    """One episode per copy, up to the last of the steps whose pictures will be asked for."""
    wanted = set(steps)
    live: dict[int, list[Picture]] = {}

    def look(step: int) -> None:
        if step in wanted and not env.draws_states:
            live[step] = [_fitted(env.render(copy, *size), size) for copy in range(env.num_envs)]
        tick()

    seen = rollout(agent, env, skills, seed=list(seeds), watch=True, limit=max(wanted), at_step=look)
    return Take(env, seen, size, live)


def seconds_to_steps(env: VectorEnv, seconds: float) -> int:
    """In simulated time where that is known, else at `RATE` steps a second; no longer than an episode."""
    steps = max(1, round(seconds / step_seconds(env)))
    return min(steps, env.episode_length) if env.episode_length else steps


def step_seconds(env: VectorEnv) -> float:
    with contextlib.suppress(UserError):
        return env.step_seconds
    return 1 / RATE


def frame_steps(env: VectorEnv, steps: int) -> tuple[list[int], float]:
    """The steps that a film shows, and how many of them a second, so that it runs as fast as the world."""
    every = max(1, round(1 / (RATE * step_seconds(env))))
    return list(range(0, steps + 1, every)), 1 / (every * step_seconds(env))


# ---- filmstrips ------------------------------------------------------------------------------------------------


def strip_steps(env: VectorEnv, steps: int, frames: int) -> list[list[int]]:
    """For each frame of a strip the steps that it shows: some moments before as ghosts, then its own."""
    count, apart = _ghosts(env)
    own = np.linspace(min(count * apart, steps), steps, frames).round().astype(int)
    return [[max(0, int(step) - ghost * apart) for ghost in range(count, -1, -1)] for step in own]


def _ghosts(env: VectorEnv) -> tuple[int, int]:
    """How many, and how many steps apart."""
    count, seconds = env.ghosts
    return count, max(1, round(seconds / step_seconds(env)))


def filmstrip(
    take: Take,
    moments: Sequence[Sequence[int]],
    copies: Sequence[int],
    titles: Sequence[str],
    tints: Sequence[Sequence[float]],
    heading: str,
    tick: Tick = lambda: None,
) -> Picture:
    """A row for each of some copies: its name, then its frames over time."""
    clock = step_seconds(take.env)
    timed = _has_seconds(take.env)
    rows = []
    for copy in copies:
        frames = []
        for steps in moments:
            frames.append(take.picture(copy, steps, plain=False))
            tick()
        rows.append(lettering.strip_row(frames, titles[copy], tints[copy]))
    count, apart = _ghosts(take.env)
    ago = f"{count * apart * clock:.2g} s" if timed else f"{count * apart} steps"
    said = f"{heading}. Each row runs over time from left to right; pale: the {ago} before."
    times = [f"{moment[-1] * clock:.1f} s" if timed else f"step {moment[-1]}" for moment in moments]
    return lettering.sheet(rows, said, times, take.size[0])


def _has_seconds(env: VectorEnv) -> bool:
    try:
        return env.step_seconds > 0
    except UserError:
        return False


# ---- films -----------------------------------------------------------------------------------------------------


def grid_film(
    take: Take,
    steps: Sequence[int],
    titles: Sequence[str],
    tints: Sequence[Sequence[float]],
    columns: int,
    task: str | None,
    tick: Tick = lambda: None,
) -> Iterator[Picture]:
    """All copies side by side, each in a border of its colour and under its name, with the return of a task."""
    for step in steps:
        tiles = []
        for copy, (title, tint) in enumerate(zip(titles, tints, strict=True)):
            said = title if task is None else f"{title}: return {take.running(copy, task, step):.0f}"
            tiles.append(lettering.tile(take.picture(copy, [step], plain=True), said, tint))
            tick()
        yield lettering.grid(tiles, columns)


def episode_film(
    take: Take, steps: Sequence[int], heading: str, tasks: Sequence[str], tick: Tick = lambda: None
) -> Iterator[Picture]:
    """One copy's episode; below it the time, what the tasks have paid so far, and the course of that."""
    paid = {task: np.concatenate([[0.0], take.seen.rewards[task][:, 0].cumsum()]) for task in tasks}
    clock, timed = step_seconds(take.env), _has_seconds(take.env)
    last = int(take.seen.lengths[0])
    for step in steps:
        now = min(step, last)
        time = f"{now * clock:.1f} s" if timed else f"step {now}"
        picture = take.picture(0, [step], plain=False)
        yield lettering.with_returns(picture, heading, time, paid, now, last)
        tick()


def write_picture(picture: Picture, out: Path) -> Path:
    from PIL import Image

    Image.fromarray(picture).save(out, optimize=True)
    return out


def write_film(frames: Iterable[Picture], rate: float, out: Path) -> Path:
    """As the ending says: .mp4, .gif or .webp."""
    check_ending(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".mp4":
        with _imageio().get_writer(out, fps=rate, macro_block_size=1, quality=7) as writer:
            for frame in frames:
                odd = frame.shape[0] % 2, frame.shape[1] % 2
                writer.append_data(np.pad(frame, ((0, odd[0]), (0, odd[1]), (0, 0)), mode="edge"))  # H.264 wants even
        return out
    from PIL import Image

    first, *rest = (Image.fromarray(frame) for frame in frames)
    options = {"quality": 60, "method": 4} if out.suffix == ".webp" else {"optimize": True}
    first.save(out, save_all=True, append_images=rest, duration=round(1000 / rate), loop=0, **options)
    return out


def check_ending(out: Path) -> None:
    """Said before the work: what a film may be called, and what it needs."""
    if out.suffix not in ENDINGS:
        raise UserError(f"a film ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, not {out.name}")
    if out.suffix == ".mp4":
        _imageio()


def _imageio() -> Any:
    try:
        import imageio
        import imageio_ffmpeg  # noqa: F401
    except ImportError:
        raise UserError("films need imageio: pip install 'cic[video]'") from None
    return imageio


def _fitted(picture: Picture, size: tuple[int, int]) -> Picture:
    """Scaled into the size, with bars where its shape is another."""
    if picture.shape[1::-1] == size:
        return picture
    from PIL import Image

    image = Image.fromarray(picture)
    scale = min(size[0] / image.width, size[1] / image.height)
    small = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))
    canvas = Image.new("RGB", size, "white")
    canvas.paste(small, ((size[0] - small.width) // 2, (size[1] - small.height) // 2))
    return np.asarray(canvas)


def _blend(pictures: Sequence[Picture]) -> Picture:
    """The last one with the others seen through it."""
    if len(pictures) == 1:
        return pictures[0]
    before = np.mean(pictures[:-1], axis=0)
    return np.asarray(0.65 * pictures[-1] + 0.35 * before, np.uint8)
