"""Finetuning: search for a skill, then learn the task with it, and evaluate now and then."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cic.core.types import Array, Batch, Bools
from cic.envs.base import VectorEnv
from cic.learning.objectives import Objective, get_objective
from cic.training.evaluation import evaluate_task
from cic.training.phase import Arrays, Phase
from cic.training.restoring import require_trials
from cic.training.selection import SearchConfig, SkillSearch
from cic.training.settings import FinetuneConfig

if TYPE_CHECKING:
    from cic.training.loop import Loop


class Finetuning(Phase):
    """One skill for all copies; the task pays."""

    Config = FinetuneConfig
    intrinsic = False
    config: FinetuneConfig[Any, Any]

    @staticmethod
    def environment(config: FinetuneConfig[Any, Any]) -> str:
        return config.task

    @property
    def title(self) -> str:
        return f"{get_objective(self.config.objective).title} {self.config.task}"

    def start(self, loop: Loop) -> None:
        super().start(loop)
        config, objective = self.config, loop.agent.objective
        selection = _selection(config.selection, objective)
        if config.skill is not None:
            selection = dataclasses.replace(selection, search="fixed")
        self.budget = config.warmup if selection.search_steps is None else selection.search_steps
        self.search = SkillSearch(objective.skills, selection, self.budget, config.seed, config.num_envs)
        self._first_update = max(config.warmup, self.budget) if self.search.searching else config.warmup
        if config.skill is not None:
            self.search.chosen = np.array(config.skill, np.float32)

    @property
    def first_update(self) -> int:
        return self._first_update

    def moves_actor(self) -> bool:
        return self.loop.updates >= self.loop.earned(self.first_update)

    def tasks(self, env: VectorEnv) -> tuple[str, ...]:
        return (env.task or "reward",)

    def return_key(self, task: str) -> str:
        return "train/return"

    def skills(self) -> tuple[Array, Bools]:
        copies = self.config.num_envs
        return np.tile(self.search.current, (copies, 1)), np.zeros(copies, np.bool_)

    def uniform(self) -> bool:
        return self.loop.step < self.config.warmup and self.search.name == "fixed"

    def after_step(self, reward: Array, done: Bools) -> None:
        if not self.search.searching:
            return
        self.search.observe(reward)
        if self.loop.step + self.config.num_envs >= self.budget and self.search.searching:
            self.search.conclude(self._inferred())
        if not self.search.searching:
            self.loop.run.write_trials(self.search.table())

    def relabel(self, batch: Batch) -> Batch:
        """Every step teaches the chosen skill, whichever candidate took it: it is that skill's Q that is wanted."""
        chosen = torch.from_numpy(self.search.current).to(batch.skill.device)
        return batch._replace(skill=chosen.expand_as(batch.skill))

    def _inferred(self) -> Array | None:
        """A regressed skill, for the method that can."""
        if self.search.name != "regress":
            return None
        agent = self.loop.agent
        next_obs, reward = (torch.from_numpy(a).to(agent.device) for a in self.loop.replay.recent(self.loop.step))
        skill = agent.objective.infer_skill(next_obs, reward)
        if skill is None or not bool(torch.isfinite(skill).all()):
            return None
        return np.asarray(skill.detach().cpu().numpy(), np.float32)

    def at_boundary(self) -> None:
        if self.loop.crossed(self.config.eval_every) and self.loop.step < self.config.steps:
            self._evaluate()

    def _evaluate(self) -> list[float]:
        loop = self.loop
        loop.require_finite_update()
        seed = int(np.random.SeedSequence([self.config.seed, loop.step]).generate_state(1)[0] >> 1)
        returns = evaluate_task(
            loop.agent,
            self.config.task,
            self.search.current,
            episodes=self.config.eval_episodes,
            seed=seed,
            timeout=self.config.env_timeout,
        )
        numbers = {"eval/return": float(returns.mean()), "eval/std": float(returns.std())}
        loop.require_finite(numbers)
        loop.write_metrics(numbers)
        loop.reporter.note(loop.step, eval=numbers["eval/return"])
        return [float(value) for value in returns]

    def result(self) -> dict[str, Any]:
        returns = self._evaluate()
        skill = self.search.current.tolist()
        return {"task": self.config.task, "return": float(np.mean(returns)), "returns": returns, "skill": skill}

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        return {}, self.search.state()

    def restore(self, arrays: Arrays, state: dict[str, Any]) -> None:
        most = self.budget // self.search.trial_steps + 2
        require_trials(state, most, self.loop.agent.objective.skills.dim)
        self.search.restore(state)
        if not self.search.searching and self.search.trials:
            self.loop.run.write_trials(self.search.table())


def _selection(config: SearchConfig, objective: Objective) -> SearchConfig:
    """`auto` means regression for a method that can infer its skill from rewards."""
    infers = type(objective).infer_skill is not Objective.infer_skill
    return dataclasses.replace(config, search="regress") if config.search == "auto" and infers else config
