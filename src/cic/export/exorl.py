"""Write ExORL's format, which `cic.data.exorl` describes and reads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.data.exorl import REWARD
from cic.export.episodes import Experience
from cic.learning.replay import Episode
from cic.runs.names import partial


def write_exorl(experience: Experience, out: Path | str, task: str | None = None) -> Path:
    """Write the episodes and return their folder, which exists only when it is complete.

    `reward` is that of `task`; by default the environment's.
    """
    domain = experience.environment.partition("-")[0].replace(":", "_").replace("/", "_")
    folder = Path(out) / domain / experience.method / "buffer"
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} contains episodes already: choose another `out`")
    unfinished = partial(folder)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for index, episode in enumerate(experience.episodes):
        arrays: Any = _arrays(episode, task)  # numpy's stubs take names for its own arguments
        np.savez_compressed(unfinished / f"episode_{index:06d}_{len(episode)}.npz", **arrays)
    if folder.exists():
        folder.rmdir()  # it is empty
    return unfinished.rename(folder)


def _arrays(episode: Episode, task: str | None) -> dict[str, npt.NDArray[Any]]:
    if task is not None and task not in episode.task_rewards:
        known = ", ".join(episode.task_rewards) or "none"
        raise UserError(f'the replay has no rewards of "{task}"; its tasks are: {known}')
    discount = np.ones((len(episode) + 1, 1), np.float32)
    discount[-1] = 0.0 if episode.terminated else 1.0
    arrays: dict[str, npt.NDArray[Any]] = {
        "observation": episode.observation,
        "action": _after_reset(episode.action),
        "reward": _after_reset((episode.reward if task is None else episode.task_rewards[task])[:, None]),
        "discount": discount,
    }
    arrays |= {f"{REWARD}{name}": _after_reset(reward[:, None]) for name, reward in episode.task_rewards.items()}
    if episode.skill.shape[1]:
        arrays["skill"] = np.concatenate([episode.skill[:1], episode.skill])
    if episode.physics is not None:
        arrays["physics"] = episode.physics
    return arrays


def _after_reset(steps: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """A row of zeros before the steps."""
    return np.concatenate([np.zeros_like(steps[:1]), steps])
