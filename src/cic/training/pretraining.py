"""Pre-training: reward-free, with random skills, and diagnostics that say whether anything was learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cic.core.types import Array, Bools, Needs
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.learning.objectives import get_objective
from cic.training.evaluation import Coverage, skill_cells
from cic.training.library import from_replay
from cic.training.phase import Arrays, Phase
from cic.training.restoring import require_like, whole
from cic.training.selection import RandomSkills
from cic.training.settings import PretrainConfig

if TYPE_CHECKING:
    from cic.training.loop import Loop


class Pretraining(Phase):
    """Every copy follows a random skill; the objective pays."""

    Config = PretrainConfig
    intrinsic = True
    config: PretrainConfig[Any, Any]

    @staticmethod
    def environment(config: PretrainConfig[Any, Any]) -> str:
        return config.domain

    @property
    def title(self) -> str:
        return f"{get_objective(self.config.objective).title} {self.config.domain}"

    def needs(self, agent: Agent) -> Needs:
        return agent.objective.needs

    def start(self, loop: Loop) -> None:
        super().start(loop)
        self._skills = RandomSkills(loop.agent.objective.skills, self.config.num_envs, loop.rng)
        self.coverage = Coverage(loop.env.coverage, loop.agent.spaces.obs)
        self._counted = 0

    @property
    def first_update(self) -> int:
        return self.config.warmup

    def tasks(self, env: VectorEnv) -> tuple[str, ...]:
        return env.tasks or ("reward",)

    def skills(self) -> tuple[Array, Bools]:
        return self._skills.current, self._skills.begins

    def uniform(self) -> bool:
        return self.loop.step < self.config.warmup

    def act(self, obs: Array, skill: Array) -> Array:
        return self.loop.agent.act(obs, skill, explore=self.learns())

    def learns(self) -> bool:
        """Not while the library is made."""
        return self.loop.step < self._library_begins

    @property
    def _library_begins(self) -> int:
        return self.config.steps - self.config.library * self.config.library_steps

    def after_step(self, reward: Array, done: Bools) -> None:
        after, space = self.loop.step + self.config.num_envs, self.loop.agent.objective.skills
        every = space.every if after < self._library_begins else self.config.library_steps
        begins = self.loop.step < self._library_begins <= after and self.config.library > 0
        self._skills.space = space  # a curriculum lets it grow
        self._skills.advance(done | begins, every)

    def after_restart(self) -> None:
        self._skills.advance(np.ones(self.config.num_envs, np.bool_), None)

    def measure(self) -> dict[str, float]:
        step = self.loop.step
        if step > self._counted:
            self.coverage.add(self.loop.replay.latest((step - self._counted) // self.config.num_envs))
            self._counted = step
        return {"coverage/fraction": self.coverage.fraction, "coverage/cells": float(self.coverage.cells)}

    def at_boundary(self) -> None:
        for step in self.config.milestones:
            if self.loop.step - self.config.num_envs < step <= self.loop.step:
                self.loop.run.save_milestone(step, self.loop.agent.state_dict())

    def result(self) -> dict[str, Any]:
        self._keep_library()
        measured = self.measure()
        cells = skill_cells(self.loop.agent, self.config.domain, seed=self.config.seed)
        if cells is not None:
            measured |= {"coverage/skill_cells": float(cells)}
            self.loop.write_metrics({"coverage/skill_cells": float(cells)})
        return {"domain": self.config.domain, "objective": self.config.objective, **measured}

    def _keep_library(self) -> None:
        space, config = self.loop.agent.objective.skills, self.config
        if space.kind == "none":
            return
        count, steps = config.library or 128, config.library_steps if config.library else space.every or 200
        if (found := from_replay(self.loop.replay, count, steps)) is not None:
            self.loop.run.save_library(found.arrays())

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        return self._skills.state() | {"visited": self.coverage.visited}, {"counted": self._counted}

    def restore(self, arrays: Arrays, state: dict[str, Any]) -> None:
        require_like(arrays, self.state()[0])
        self._skills.restore(arrays)
        self.coverage.visited = np.array(arrays["visited"])
        self._counted = whole(state, "counted", 0, self.loop.step)
