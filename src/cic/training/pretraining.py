"""Pre-training: reward-free, with random skills, and diagnostics that say whether anything was learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cic.core.types import Array, Bools, Needs
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.learning.objectives import get_objective
from cic.training.checkpoint_checks import require_like, whole
from cic.training.evaluation import Coverage, skill_cells
from cic.training.library import from_replay
from cic.training.phase import Arrays, Phase
from cic.training.selection import RandomSkills
from cic.training.settings import PretrainConfig
from cic.training.skill_variance import diagnose

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

    @staticmethod
    def ending(config: PretrainConfig[Any, Any]) -> int:
        return _library_begins(config, config.library_skills)

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
        return not self._library or self.loop.step < _library_begins(self.config, self._library)

    @property
    def _library(self) -> int:
        """How many skills act at the end: none where there are none."""
        return 0 if self.loop.agent.objective.skills.kind == "none" else self.config.library_skills

    def after_step(self, reward: Array, done: Bools) -> None:
        space = self.loop.agent.objective.skills
        self._skills.space = space  # a curriculum lets it grow
        episode = self._library_episode()
        if episode:
            self._skills.again()
        else:
            begins = done | (episode is not None)
            self._skills.advance(begins, space.every if self.learns() else None)

    def cuts(self) -> bool:
        return self._library_episode() is not None

    def _library_episode(self) -> int | None:
        """Which episode of its skill every copy begins after this step, if one of the library's does."""
        config = self.config
        length = config.library_steps * config.num_envs
        into = self.loop.step + config.num_envs - _library_begins(config, self._library)
        if not self._library or into < 0 or into % length:
            return None
        return into // length % config.library_starts

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
                self._diagnose()

    def _diagnose(self) -> None:
        """How much a skill matters, from a few skills and starts in an environment of its own."""
        space, count = self.loop.agent.objective.skills, self.config.diagnosed
        if space.kind == "none" or not count:
            return
        skills = space.sample(count, np.random.default_rng(self.config.seed))
        found = diagnose(self.loop.agent, self.config.domain, skills, starts=3, seed=self.config.seed, limit=100)
        self.loop.write_metrics(found.metrics())

    def result(self) -> dict[str, Any]:
        self._keep_library()
        measured = self.measure()
        cells = skill_cells(self.loop.agent, self.config.domain, seed=self.config.seed)
        if cells is not None:
            measured |= {"coverage/skill_cells": float(cells)}
            self.loop.write_metrics({"coverage/skill_cells": float(cells)})
        told = {"domain": self.config.domain, "objective": self.config.objective}
        return told | measured | {"coverage/of": self.coverage.of}

    def _keep_library(self) -> None:
        space, config = self.loop.agent.objective.skills, self.config
        if space.kind == "none":
            return
        count, steps = 128, space.every or 200
        if self._library:
            count, steps = self._library * config.library_starts, config.library_steps
        if (found := from_replay(self.loop.replay, count, steps)) is not None:
            self.loop.run.save_library(found.arrays())

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        return self._skills.state() | {"visited": self.coverage.visited}, {"counted": self._counted}

    def restore(self, arrays: Arrays, state: dict[str, Any]) -> None:
        require_like(arrays, self.state()[0])
        self._skills.restore(arrays)
        self.coverage.visited = np.array(arrays["visited"])
        self._counted = whole(state, "counted", 0, self.loop.step)


def _library_begins(config: PretrainConfig[Any, Any], skills: int) -> int:
    """The step at which so many rounds are left as the copies need together."""
    copies = config.num_envs
    last, rounds = -(-config.steps // copies) * copies, -(-skills // copies) * config.library_starts
    return last - rounds * config.library_steps * copies
