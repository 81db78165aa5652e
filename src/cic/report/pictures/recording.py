"""Recorded episodes and their frames.

An episode is played once. If the environment can render any physics state, the states are stored and rendered
afterwards. Otherwise its own renderer produces the frames during the episode, and earlier frames are blended in.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.report.figures.style import RC_PARAMS
from cic.report.pictures import frames
from cic.report.pictures.frames import Frame
from cic.report.pictures.trajectory_plots import seconds_per_step
from cic.training.evaluation import Rollout, rollout

Tick = Callable[[], object]
FRAME_RATE = 15
"""Approximate number of frames per second."""
FORMATS = (".mp4", ".gif", ".webp")


@dataclass
class Recording:
    """One episode per parallel environment."""

    env: VectorEnv
    episodes: Rollout
    size: tuple[int, int]
    """Width and height of a frame."""
    rendered: dict[int, list[Frame]] = field(default_factory=dict)
    """Step → frame of each environment, if physics states cannot be rendered."""

    def frame(self, index: int, steps: Sequence[int], *, plain: bool) -> Frame:
        """Return environment `index` at the last of the steps, with ghosts of the others; at most its last step."""
        last = int(self.episodes.lengths[index])
        steps = sorted({min(step, last) for step in steps})
        if self.env.draws_states:
            return self.env.draw([self.episodes.physics[index][step] for step in steps], *self.size, plain=plain)
        known = np.array([step for step in sorted(self.rendered) if step <= last])  # later steps: another episode
        near = sorted({int(known[np.abs(known - step).argmin()]) for step in steps})
        return frames.blend([self.rendered[step][index] for step in near])

    def running_return(self, index: int, task: str, step: int) -> float:
        return float(self.episodes.rewards[task][:step, index].sum())

    def time(self, step: int) -> str:
        seconds = seconds_per_step(self.env)
        return f"step {step}" if seconds is None else f"{step * seconds:.1f} s"


def record(
    agent: Agent,
    env: VectorEnv,
    skills: Array,
    seeds: Sequence[int],
    size: tuple[int, int],
    steps: Iterable[int],
    tick: Tick = lambda: None,
) -> Recording:
    """Play one episode per environment, up to the last of the steps whose frames are needed."""
    needed = set(steps)
    rendered: dict[int, list[Frame]] = {}

    def at_step(step: int) -> None:
        if step in needed and not env.draws_states:
            rendered[step] = [frames.fit(env.render(index, *size), size) for index in range(env.num_envs)]
        tick()

    episodes = rollout(agent, env, skills, seed=list(seeds), watch=True, limit=max(needed), at_step=at_step)
    return Recording(env, episodes, size, rendered)


def seconds_to_steps(env: VectorEnv, seconds: float) -> int:
    """Convert simulated time to steps, at most one episode."""
    steps = max(1, round(seconds / _film_seconds(env)))
    return min(steps, env.episode_length) if env.episode_length else steps


def frame_steps(env: VectorEnv, steps: int) -> tuple[list[int], float]:
    """Return the steps that a film shows and its frame rate, so that it plays in simulated time."""
    every = max(1, round(1 / (FRAME_RATE * _film_seconds(env))))
    return list(range(0, steps + 1, every)), 1 / (every * _film_seconds(env))


def _film_seconds(env: VectorEnv) -> float:
    return seconds_per_step(env) or 1 / FRAME_RATE


# ---- filmstrips ------------------------------------------------------------------------------------------------------


def strip_steps(env: VectorEnv, steps: int, columns: int) -> list[list[int]]:
    """Return for each frame of a filmstrip the steps that it shows: its ghosts, then its own step."""
    count, apart = _ghosts(env)
    own = np.linspace(min(count * apart, steps), steps, columns).round().astype(int)
    return [[max(0, int(step) - ghost * apart) for ghost in range(count, -1, -1)] for step in own]


def _ghosts(env: VectorEnv) -> tuple[int, int]:
    """Return the number of ghosts, and the steps between two of them."""
    count, seconds = env.ghosts
    return count, max(1, round(seconds / _film_seconds(env)))


def write_filmstrip(
    recording: Recording,
    columns: Sequence[Sequence[int]],
    rows: Mapping[str, tuple[int, Sequence[float]]],
    heading: str,
    out: Path,
    tick: Tick = lambda: None,
) -> None:
    """Draw one row per title, with the index and colour of its environment: frames at the steps of each column."""
    import matplotlib
    from matplotlib.figure import Figure

    count, apart = _ghosts(recording.env)
    seconds = seconds_per_step(recording.env)
    before = f"{count * apart} steps" if seconds is None else f"{count * apart * seconds:.2g} s"
    width, height = (side / 100 for side in recording.size)
    with matplotlib.rc_context(RC_PARAMS):
        figure = Figure((len(columns) * width + 1.2, len(rows) * height + 0.7), layout="constrained")
        figure.suptitle(f"{heading}. Time runs from left to right; pale: the {before} before.", x=0.01, ha="left")
        axes = figure.subplots(len(rows), len(columns), squeeze=False)
        for axis, steps in zip(axes[0], columns, strict=True):
            axis.set_title(recording.time(steps[-1]))
        for line, (title, (index, tint)) in zip(axes, rows.items(), strict=True):
            line[0].set_ylabel("\n".join(textwrap.wrap(title, 16)), rotation=0, ha="right", va="center")
            line[0].spines["left"].set(color=tint, linewidth=5)
            for axis, steps in zip(line, columns, strict=True):
                axis.imshow(recording.frame(index, steps, plain=False))
                axis.set(xticks=[], yticks=[])
                tick()
        figure.savefig(out, dpi=100)


# ---- films -----------------------------------------------------------------------------------------------------------


def grid_film(
    recording: Recording,
    steps: Sequence[int],
    titles: Sequence[str],
    tints: Sequence[Sequence[float]],
    columns: int,
    task: str | None,
    tick: Tick = lambda: None,
) -> Iterator[Frame]:
    """Yield frames with all environments side by side, each with its title and the running return of `task`."""
    for step in steps:
        tiles = []
        for index, (title, tint) in enumerate(zip(titles, tints, strict=True)):
            text = title if task is None else f"{title}: return {recording.running_return(index, task, step):.0f}"
            tiles.append(frames.tile(recording.frame(index, [step], plain=True), text, tint))
            tick()
        yield frames.grid(tiles, columns)


def episode_film(
    recording: Recording, steps: Sequence[int], heading: str, tasks: Sequence[str], tick: Tick = lambda: None
) -> Iterator[Frame]:
    """Yield frames of the first environment, with the time and the running return of each task below."""
    for step in steps:
        returns = {task: recording.running_return(0, task, step) for task in tasks}
        frame = recording.frame(0, [step], plain=False)
        yield frames.with_returns(frame, heading, recording.time(step), returns)
        tick()


def write_film(shots: Iterable[Frame], rate: float, out: Path) -> Path:
    """Write the frames in the format of the file's suffix: .mp4, .gif or .webp."""
    check_format(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".mp4":
        import imageio

        with imageio.get_writer(out, fps=rate, macro_block_size=1, quality=7) as writer:
            for shot in shots:
                odd = shot.shape[0] % 2, shot.shape[1] % 2
                writer.append_data(np.pad(shot, ((0, odd[0]), (0, odd[1]), (0, 0)), mode="edge"))  # even for H.264
        return out
    from PIL import Image

    first, *rest = (Image.fromarray(shot) for shot in shots)
    options = {"quality": 60, "method": 4} if out.suffix == ".webp" else {"optimize": True}
    first.save(out, save_all=True, append_images=rest, duration=round(1000 / rate), loop=0, **options)
    return out


def check_format(out: Path) -> None:
    """Refuse a file format that cannot be written."""
    if out.suffix not in FORMATS:
        raise UserError(f"a film must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not {out.name}")
    for name in ("matplotlib", "imageio", "imageio_ffmpeg") if out.suffix == ".mp4" else ("matplotlib",):
        if find_spec(name) is None:  # matplotlib provides the font of the text in frames
            raise UserError(f"films need {name}: pip install 'cic[video]'")
