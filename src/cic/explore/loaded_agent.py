"""What is looked at: a run's agent, the body that it moves, and what its folder says of skills."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cic import envs
from cic.api import load
from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.learning.objectives import SkillSpace
from cic.runs import contents, records
from cic.runs.bundled import shipped
from cic.runs.contents import Selection
from cic.runs.folder import Run
from cic.runs.untrusted_json import plain
from cic.training.loading import config_of, open_env


@dataclass(frozen=True)
class Subject:
    """One agent. Every viewer shares it; none changes it."""

    name: str
    """As it was given on the command line."""
    run: Run
    agent: Agent
    environment: str
    title: str
    nstep: int
    trust: bool
    at: int | None
    trials: Selection | None
    """Of a finetuning: the skills that it tried, and which it took."""

    @property
    def space(self) -> SkillSpace:
        return self.agent.objective.skills

    def make_env(self, num_envs: int = 1, seed: int = 0) -> VectorEnv:
        return open_env(self.run, num_envs=num_envs, seed=seed, trust=self.trust)

    def first_skill(self, seed: int) -> Array:
        """What acts before somebody chooses: the run's own skill, else a random one."""
        if self.agent.skill is not None:
            return self.agent.skill
        sampled: Array = self.space.sample(1, np.random.default_rng(seed))[0]
        return sampled

    def command(self, skill: Array, seed: int) -> str:
        """The call that shows the same skill from the same start."""
        words = ["cic", "explore", self.name, *([] if self.at is None else ["--at", str(self.at)])]
        if self.space.kind != "none":
            words += ["--skill", *spelled(self.space, skill)]
        return shlex.join([*words, "--seed", str(seed)])


def spelled(space: SkillSpace, skill: Array) -> list[str]:
    """A skill as `--skill` takes it, as short as it can be without losing a bit."""
    if space.kind == "onehot" and space.dim > 1:
        return [str(int(skill.argmax()))]
    if space.kind == "box" and (skill == skill[0]).all():
        skill = skill[:1]
    return [np.format_float_positional(value, trim="-") for value in skill]


def open_subject(name: Path | str, *, at: int | None = None, trust: bool = False) -> Subject:
    """A run folder, or an agent that ships with the package; refused here if there is nothing to look at."""
    run = Run(name)
    config = config_of(run)
    agent = load(name, at=at)
    environment = config.environment
    domain, _ = envs.split_name(environment)
    known = envs.domains().get(domain)
    if known is not None and not known.module.startswith("cic.envs.suite"):
        raise UserError(f'{name} acts in "{environment}", which has no body to show: `cic skills {name}` draws it')
    needs = agent.objective.needs.nstep
    record = records.read([run.path])[0]
    trials = contents.selection(record[0])[0] if record else None
    nstep = needs or config.learning.nstep
    return Subject(
        str(name), run, agent, environment, plain(run.about.get("title", config.objective)), nstep, trust, at, trials
    )


def offered(given: list[str]) -> list[str]:
    """What a viewer can choose from: what was given on the command line, then what ships with the package."""
    return list(dict.fromkeys([*given, *shipped()]))
