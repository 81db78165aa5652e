"""What a finished run's skills do: rollouts under the mean action, and pictures of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.api import load
from cic.core.errors import UserError
from cic.core.types import Array
from cic.experiments.measuring import FOLDER
from cic.learning.agent import Agent
from cic.runs.folder import Run
from cic.runs.untrusted_json import plain
from cic.training.loading import open_env

Doubles = npt.NDArray[np.float64]
FRAMES = 8
"""Pictures of a strip."""
GAP = 4


@dataclass(frozen=True)
class Acted:
    """What copies did, side by side."""

    physics: Doubles  # (T + 1, N, …): positions and velocities
    rewards: dict[str, Doubles]  # task → (N,), summed


def act(run: Path, skills: Array, steps: int, seeds: Sequence[int]) -> Acted:
    """Every copy under its skill for so many steps, or to the end of the episode."""
    agent = load(run)
    env = open_env(Run(run), num_envs=len(skills), seed=0)
    try:
        obs, _ = env.reset(seed=list(seeds))
        seen, rewards = [env.physics()], {task: np.zeros(len(skills)) for task in env.tasks}
        for _ in range(min(steps, env.episode_length or steps)):
            obs, _, terminated, truncated, info = env.step(agent.act(obs, skills))
            seen.append(env.physics())
            for task, paid in info["rewards"].items():
                rewards[task] += paid
            if (terminated | truncated).any():  # the built-in domains end together
                break
        return Acted(np.stack(seen), rewards)
    finally:
        env.close()


def skills_of(agent: Agent, count: int, seed: int = 0) -> Array:
    """All one-hot skills, or so many random ones."""
    space = agent.objective.skills
    if space.kind == "onehot":
        return np.eye(space.dim, dtype=np.float32)[:count]
    return space.sample(count, np.random.default_rng(seed))


def filmstrip(run: Path, skill: Array, steps: int, seed: int = 0, size: int = 120) -> npt.NDArray[np.uint8] | str:
    """Pictures of one skill at equal times, side by side; or the sentence that says why there are none."""
    frames = pictures(run, skill, steps, max(1, steps // FRAMES), seed, size)
    return frames if isinstance(frames, str) else side_by_side(frames[:FRAMES])


def side_by_side(frames: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    """One picture of several, with white between them."""
    gap = np.full((frames[0].shape[0], GAP, 3), 255, np.uint8)
    return np.concatenate([part for frame in frames for part in (frame, gap)][:-1], axis=1)


def pictures(
    run: Path, skill: Array, steps: int, every: int, seed: int = 0, size: int = 120
) -> list[npt.NDArray[np.uint8]] | str:
    """A picture of one skill every so many steps."""
    agent = load(run)
    env = open_env(Run(run), num_envs=1, seed=seed)
    frames = []
    try:
        obs, _ = env.reset(seed=seed)
        for step in range(min(steps, env.episode_length or steps)):
            if step % every == 0:
                frames.append(env.render(0, width=size, height=size))
            obs = env.step(agent.act(obs, skill[None])).obs
    except UserError as error:
        return str(error)
    finally:
        env.close()
    return frames


def save_picture(path: Path, picture: Any) -> None:
    from matplotlib.image import imsave

    imsave(path, picture)


def kept_file(run: Path, name: Any, ending: str) -> Path | None:
    """A file that a measurement left in the run's folder; the folder may come from anywhere, so no other file."""
    if not isinstance(name, str) or not name.endswith(ending) or Path(name).name != name:
        return None
    path = run / FOLDER / name
    return path if path.is_file() and not path.is_symlink() and not path.parent.is_symlink() else None


def read_picture(run: Path, name: Any) -> Any:
    """(height, width, 3), or a sentence: why there is none, as the measurement said, or that it is missing."""
    from matplotlib.image import imread

    path = kept_file(run, name, ".png")
    if path is None:
        return plain(name) if not str(name).endswith(".png") else f"{plain(name)} is missing"
    try:
        return imread(path)[..., :3]
    except Exception as error:  # whatever a damaged picture does to its reader
        return f"{path.name} cannot be read ({type(error).__name__})"


def save_film(path: Path, frames: Sequence[Any]) -> bool:
    """Where the extra `video` is installed."""
    try:
        import imageio
    except ImportError:
        return False
    imageio.mimwrite(path, frames, fps=15, macro_block_size=1, quality=7)
    return True
