"""The two phases: reward-free pre-training, and finetuning to a task. Each says what differs; the loop is one."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cic.core.types import Array, Batch
from cic.learning.agent import Agent
from cic.learning.objectives import Objective
from cic.runs.folder import Run
from cic.training.evaluation import Coverage, evaluate_task
from cic.training.loop import Loop
from cic.training.selection import RandomSkills, SelectionConfig, SkillSearch
from cic.training.settings import FinetuneConfig, PretrainConfig


class Pretraining(Loop):
    """Reward-free: random skills, and diagnostics that say whether anything was learned."""

    config: PretrainConfig[Any]

    def __init__(self, run: Run, config: PretrainConfig[Any], agent: Agent, quiet: bool = False) -> None:
        super().__init__(run, config, config.domain, agent, quiet)
        self.title = f"{config.objective} {config.domain}"
        self._skills = RandomSkills(agent.objective.skill, config.num_envs, self.rng)
        self.coverage = Coverage(self.env.coverage, agent.spaces.obs)
        self._counted = 0

    def skills(self) -> Array:
        return self._skills.current

    def uniform(self) -> bool:
        return self.step < self.config.warmup

    def observe(self, reward: Array, done: npt.NDArray[np.bool_]) -> None:
        self._skills.advance(done)

    def measure(self) -> dict[str, float]:
        if self.step > self._counted:
            self.coverage.add(self.replay.latest((self.step - self._counted) // self.config.num_envs))
            self._counted = self.step
        return {"coverage/fraction": self.coverage.fraction, "coverage/cells": float(self.coverage.cells)}

    def at_boundary(self) -> None:
        for step in self.config.milestones:
            if self.step - self.config.num_envs < step <= self.step:
                self.run.save_milestone(step, self.agent.state_dict())

    def result(self) -> dict[str, Any]:
        return {"domain": self.config.domain, "objective": self.config.objective, **self.measure()}

    def extra_state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        return self._skills.state() | {"visited": self.coverage.visited}, {"counted": self._counted}

    def restore_extra(self, arrays: dict[str, npt.NDArray[Any]], state: dict[str, Any]) -> None:
        self._skills.restore(arrays)
        self.coverage.visited = np.array(arrays["visited"])
        self._counted = state["counted"]


class Finetuning(Loop):
    """A task's reward: search for a skill, then learn with it, and evaluate now and then."""

    config: FinetuneConfig[Any]

    def __init__(self, run: Run, config: FinetuneConfig[Any], agent: Agent, quiet: bool = False) -> None:
        super().__init__(run, config, config.task, agent, quiet)
        self.title = f"{config.objective} {config.task}"
        selection = _selection(config.selection, agent.objective)
        if config.skill is not None:
            selection = dataclasses.replace(selection, method="fixed")
        self.budget = config.warmup if selection.search is None else selection.search
        self.search = SkillSearch(agent.objective.skill, selection, self.budget, config.seed, config.num_envs)
        if self.search.searching:
            self.start = max(self.start, self.budget)
        if config.skill is not None:
            self.search.chosen = np.array(config.skill, np.float32)
        self.tasks = (self.env.task or "reward",)
        self.running_return = np.zeros((1, config.num_envs))
        self.finished_return = np.zeros(1)

    def skills(self) -> Array:
        return np.tile(self.search.current, (self.config.num_envs, 1))

    def uniform(self) -> bool:
        return self.step < self.config.warmup and self.search.method == "fixed"

    def observe(self, reward: Array, done: npt.NDArray[np.bool_]) -> None:
        if not self.search.searching:
            return
        self.search.observe(reward)
        if self.step + self.config.num_envs >= self.budget and self.search.searching:
            self.search.conclude(self._inferred())
        if not self.search.searching:
            self.run.write_trials(self.search.table())

    def lesson(self, batch: Batch) -> Batch:
        """Every step teaches the chosen skill, whichever candidate took it: it is that skill's Q that is wanted."""
        chosen = torch.from_numpy(self.search.current).to(self.agent.device)
        return batch._replace(skill=chosen.expand_as(batch.skill))

    def _inferred(self) -> Array | None:
        """A regressed skill, for the method that can."""
        if self.search.method != "regress":
            return None
        next_obs, reward = (torch.from_numpy(rows).to(self.agent.device) for rows in self.replay.recent(self.step))
        with torch.no_grad():
            skill = self.agent.objective.infer_skill(next_obs, reward)
        if skill is None or not bool(torch.isfinite(skill).all()):
            return None
        return np.asarray(skill.cpu().numpy(), np.float32)

    def at_boundary(self) -> None:
        if self.crossed(self.config.eval_every) and self.step < self.config.steps:
            self._evaluate()

    def _evaluate(self) -> list[float]:
        self.require_finite_update()
        seed = int(np.random.SeedSequence([self.config.seed, self.step]).generate_state(1)[0] >> 1)
        returns = evaluate_task(
            self.agent, self.config.task, self.search.current, episodes=self.config.eval_episodes, seed=seed
        )
        numbers = {"eval/return": float(returns.mean()), "eval/std": float(returns.std())}
        self.require_finite(numbers)
        self.write_metrics(numbers)
        self.reporter.note(eval=numbers["eval/return"])
        return [float(value) for value in returns]

    def result(self) -> dict[str, Any]:
        returns = self._evaluate()
        skill = self.search.current.tolist()
        return {"task": self.config.task, "return": float(np.mean(returns)), "returns": returns, "skill": skill}

    def return_key(self, task: str) -> str:
        return "train/return"

    def extra_state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        return {}, self.search.state()

    def restore_extra(self, arrays: dict[str, npt.NDArray[Any]], state: dict[str, Any]) -> None:
        self.search.restore(state)
        if not self.search.searching and self.search.trials:
            self.run.write_trials(self.search.table())


def _selection(config: SelectionConfig, objective: Objective) -> SelectionConfig:
    """`auto` means regression for a method that can infer its skill from rewards."""
    infers = type(objective).infer_skill is not Objective.infer_skill
    return dataclasses.replace(config, method="regress") if config.method == "auto" and infers else config
