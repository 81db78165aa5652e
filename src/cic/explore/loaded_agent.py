"""The agent of a run, with its environment and what its run folder records about skills."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cic.api import load
from cic.core.command_text import command_text
from cic.core.errors import UserError
from cic.core.imports import import_names
from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.learning.objectives import SkillSpace
from cic.runs import contents, records
from cic.runs.bundled import bundled_agents
from cic.runs.contents import Selection
from cic.runs.folder import Run
from cic.runs.untrusted import plain
from cic.training.loading import config_of, open_env


@dataclass(frozen=True)
class LoadedAgent:
    """One agent. All viewers share it; none changes it."""

    name: str
    """The name or path on the command line."""
    run: Run
    agent: Agent
    environment: str
    title: str
    nstep: int
    trust: bool
    at: int | None
    trials: Selection | None
    """Of a finetuning run: the skills that were tried, and which one was selected."""

    @property
    def space(self) -> SkillSpace:
        return self.agent.objective.skills

    def make_env(self, num_envs: int = 1, seed: int = 0, *, pictures: bool = False) -> VectorEnv:
        return open_env(self.run, num_envs=num_envs, seed=seed, trust=self.trust, pictures=pictures)

    def first_skill(self, seed: int) -> Array:
        """Return the run's own skill, or a random one."""
        if self.agent.skill is not None:
            return self.agent.skill
        sampled: Array = self.space.sample(1, np.random.default_rng(seed))[0]
        return sampled

    def command(self, skill: Array, seed: int) -> str:
        """Return the command that shows the same skill from the same initial state."""
        numbers = skill_arguments(self.space, skill) if self.space.kind != "none" else None
        imports = import_names(self.run.about.get("imports"))
        return command_text("explore", self.name, at=self.at, skill=numbers, seed=seed, imports=imports)


def skill_arguments(space: SkillSpace, skill: Array) -> list[str]:
    """Return a skill in the form that the setting `skill` accepts, as short as possible without loss of precision."""
    if space.kind == "onehot" and space.dim > 1:
        return [str(int(skill.argmax()))]
    if space.kind == "box" and (skill == skill[0]).all():
        skill = skill[:1]
    return [np.format_float_positional(value, trim="-") for value in skill]


def load_agent(name: Path | str, *, at: int | None = None, trust: bool = False) -> LoadedAgent:
    """Load the agent of a run folder or a bundled agent."""
    run = Run(name)
    config = config_of(run)
    agent = load(name, at=at)
    environment = config.environment
    if agent.spaces.images:
        raise UserError(f"{name} observes images, which the explorer does not render: use `cic skills {name}`")
    record = records.read([run.path])[0]
    return LoadedAgent(
        name=str(name),
        run=run,
        agent=agent,
        environment=environment,
        title=plain(run.about.get("title", config.objective)),
        nstep=agent.objective.needs.nstep or config.learning.nstep,
        trust=trust,
        at=at,
        trials=contents.selection(record[0])[0] if record else None,
    )


def available_agents(given: list[str]) -> list[str]:
    """Return the agents of the command line, then the bundled ones."""
    return list(dict.fromkeys([*given, *bundled_agents()]))
