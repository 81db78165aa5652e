"""A run's replay as whole episodes.

The replay is a ring of records per environment copy (see `cic.learning.replay`): an episode of T steps is T records and
one more with its final observation. Episodes whose beginning was overwritten, or whose end has not come, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cic import envs
from cic.core.errors import UserError
from cic.core.types import Array
from cic.runs.folder import Run
from cic.runs.storage import Arrays
from cic.training.loading import config_of


@dataclass(frozen=True)
class Episode:
    """T steps: row t of what is done and paid belongs to the step from observation t to t + 1."""

    observation: Array  # (T + 1, obs)
    action: Array  # (T, action)
    reward: Array  # (T,) what the environment paid
    task_rewards: dict[str, Array]  # task → (T,)
    terminated: bool  # a real end, not the time limit
    skill: Array  # (T, dim); (T, 0) for methods without skills
    physics: npt.NDArray[np.float64] | None = None  # (T + 1, state): positions, velocities, activations

    def __len__(self) -> int:
        return len(self.action)


@dataclass(frozen=True)
class Experience:
    """All whole episodes of a run, oldest first within each copy."""

    environment: str
    method: str
    episodes: list[Episode]
    left_out: int
    """Steps of episodes that are not whole."""


def episodes_of(run: Run | Path | str) -> Experience:
    """From the run's newest checkpoint."""
    opened = run if isinstance(run, Run) else Run(run)
    replay = opened.replay()
    config = config_of(opened)
    env = envs.make(config.environment)
    try:
        name, tasks = env.name, env.tasks
    finally:
        env.close()
    found = [episode for copy in range(len(replay["written"])) for episode in _of_copy(replay, copy, tasks)]
    if not found:
        raise UserError(f"{opened.path} holds no whole episode: let it run for longer, or with a larger --replay")
    steps = int((replay["skill_id"] >= 0).sum()) - _empty(replay)
    return Experience(name, str(config.objective), found, steps - sum(map(len, found)))


def _empty(replay: Arrays) -> int:
    """Records of the arrays that were never written, because other copies had longer streams."""
    slots = replay["obs"].shape[1]
    return int((slots - np.minimum(replay["written"], slots)).sum())


def _of_copy(replay: Arrays, copy: int, tasks: tuple[str, ...]) -> Iterator[Episode]:
    slots, written = replay["obs"].shape[1], int(replay["written"][copy])
    order = np.arange(min(written, slots))
    if written > slots:
        order = (order + written) % slots
    mine = {name: values[copy][order] for name, values in replay.items() if name in _RECORDS}
    ends = np.flatnonzero(mine["skill_id"] < 0)
    begins = [0, *(ends[:-1] + 1)] if len(ends) else []
    for begin, end in zip(begins, ends, strict=True):
        if begin == 0 and written > slots:  # its first records may be overwritten
            continue
        yield _episode(mine, slice(int(begin), int(end)), int(end), tasks, replay["skills"])


_RECORDS = ("obs", "action", "reward", "task_rewards", "terminated", "skill_id", "physics")


def _episode(mine: Arrays, steps: slice, end: int, tasks: tuple[str, ...], skills: npt.NDArray[Any]) -> Episode:
    observed = slice(steps.start, end + 1)
    physics = mine.get("physics")
    return Episode(
        observation=mine["obs"][observed],
        action=mine["action"][steps],
        reward=mine["reward"][steps],
        task_rewards={task: mine["task_rewards"][steps, place] for place, task in enumerate(tasks)},
        terminated=bool(mine["terminated"][end - 1]),
        skill=skills[mine["skill_id"][steps] % len(skills)],
        physics=physics[observed] if physics is not None and physics.shape[1] else None,
    )
