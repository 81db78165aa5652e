"""What was seen: the episodes that tables, drawings and films are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.learning.objectives import get_objective
from cic.report.pictures import drawing
from cic.report.pictures.choosing import Shown
from cic.report.pictures.look import Look
from cic.runs.folder import Run
from cic.training.evaluation import Rollout
from cic.training.loading import config_of


@dataclass(frozen=True)
class Best:
    """The skill that a task pays most, of all that were tried."""

    task: str
    skill: Array
    name: str
    score: float
    """Mean return over the starts."""


@dataclass(frozen=True)
class Watched:
    """Episodes: for each skill one from every start, the first start first."""

    run: Run
    agent: Agent
    env: VectorEnv
    asked: Look
    shown: Shown
    seen: Rollout
    starts: int

    @property
    def firsts(self) -> list[int]:
        """Of each skill, the episode from the first start."""
        return list(range(0, len(self.seen.lengths), self.starts))

    def panels(self, episodes: Sequence[int]) -> list[drawing.Panel]:
        obs, physics = self.seen.observations, self.seen.physics
        return drawing.panels(self.env, [obs[i] for i in episodes], [physics[i] for i in episodes])

    @property
    def lines(self) -> list[npt.NDArray[np.float64]]:
        return [np.stack(line, axis=1) for line in self.panels(self.firsts)[0].lines]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Whose returns are told: of a run on one task, that one."""
        return (self.env.task,) if self.env.task else self.env.tasks or ("reward",)

    @property
    def method(self) -> str:
        return get_objective(config_of(self.run).objective).title

    @property
    def heading(self) -> str:
        count, name = len(self.shown.names), self.env.name
        if self.shown.noun == "start":
            own = "from scratch" if self.method == "DDPG" else self.method
            return f"{name}: the policy ({own}) from {count} starts"
        what = f"skill {self.shown.names[0]}" if count == 1 else f"what {count} skills do"
        return f"{name}: {what} ({self.method})"
