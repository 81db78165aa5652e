"""`cic film`: one episode of a run's agent, with the running return in the picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cic import envs
from cic.api import load
from cic.core.errors import UserError, unknown
from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.learning.objectives import get_objective
from cic.report.pictures import choosing, filming
from cic.report.pictures.look import Shot
from cic.runs.folder import Run
from cic.runs.links import refuse_links
from cic.training.loading import check_source, config_of
from cic.training.progress import Stages

UNKNOWN = 1_000
"""Steps that are filmed at most where the length of an episode is not known."""


@dataclass(frozen=True)
class Film:
    """A film that was made."""

    file: Path
    steps: int
    returns: dict[str, float]
    """Per task, of what was filmed."""


def film(
    run: Path | str,
    *,
    at: int | None = None,
    out: Path | str | None = None,
    trust: bool = False,
    stages: Stages | None = None,
    **shot: Any,
) -> Film:
    """Film an episode of a run's agent on its task, or of a pre-trained agent under a skill.

    What else can be asked for is in `Shot`; `trust` as in `cic.evaluate`.
    """
    asked, stages = Shot(**shot), stages or Stages("cic film", quiet=True)
    file = _file(Run(run), out)
    with stages("loading the agent"):
        opened = Run(run)
        agent = load(run, at=at)
        check_source(opened, config_of(opened), trust)
    name, by = _skill(agent, asked)
    env = envs.make(_environment(opened, asked.task), num_envs=1, seed=asked.seed, pictures=True)
    try:
        limit = _steps(env, asked.seconds)
        frames, rate = filming.frame_steps(env, limit)
        with stages("playing", limit) as tick:
            take = filming.play(agent, env, by[None], [asked.seed], (asked.width, asked.height), frames, tick)
        frames = [step for step in frames if step <= take.seen.lengths[0]]
        heading = f"{env.name}, {get_objective(config_of(opened).objective).title}{name}"
        with stages("film", len(frames)) as tick:
            shots = filming.episode_film(take, frames, heading, _tasks(env), tick)
            filming.write_film(shots, rate, file)
    finally:
        env.close()
    returns = {shown: float(take.seen.returns[shown][0]) for shown in _tasks(env)}
    return Film(file, int(take.seen.lengths[0]), returns)


def _file(run: Run, out: Path | str | None) -> Path:
    """Where it goes; what cannot be written there is said before the work."""
    if out is None:
        refuse_links(run.path)
    file = Path(out) if out is not None else run.path / "pictures" / "film.mp4"
    filming.check_ending(file)
    return file


def _steps(env: VectorEnv, seconds: float | None) -> int:
    """So many, or a whole episode; where nobody knows how long that is, until it ends."""
    return filming.seconds_to_steps(env, seconds) if seconds is not None else env.episode_length or UNKNOWN


def _skill(agent: Agent, asked: Shot) -> tuple[str, Array]:
    """What the heading says of the skill, and the skill."""
    space = agent.objective.skills
    if asked.skill is not None:
        own = space.check(asked.skill)
    elif agent.skill is not None:
        own = agent.skill
    else:
        own = space.sample(1, np.random.default_rng(asked.seed))[0]
    return (f", skill {choosing.skill_name(space, own)}" if space.dim else ""), own


def _environment(run: Run, task: str | None) -> str:
    name: str = config_of(run).environment
    if task is None:
        return name
    if run.kind == "finetune":
        raise UserError(f"{run.path} was finetuned on {name}: drop --task")
    domain, _ = envs.split_name(name)
    known = envs.domains().get(domain)
    if known is None:
        raise UserError(f"{name} has no named tasks: drop --task")
    short = task.removeprefix(f"{domain}-")
    if short not in known.tasks:
        raise unknown(f"task of {domain}", task, known.tasks)
    return f"{domain}-{short}"


def _tasks(env: VectorEnv) -> tuple[str, ...]:
    """Whose returns are shown: the environment's own, or those of every task of a domain."""
    return env.tasks if env.tasks and env.task is None else ("reward",)
