"""`cic film`: a film of one episode with its running return."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cic import envs
from cic.api import load
from cic.core.config import with_fields
from cic.core.errors import UserError, unknown
from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.learning.objectives import get_objective
from cic.report.pictures import recording, skill_choice
from cic.report.pictures.options import FilmOptions
from cic.runs.bundled import refuse_bundled
from cic.runs.folder import Run
from cic.training.loading import check_source, config_of
from cic.training.progress import Stages

MAX_STEPS = 1_000
"""Maximum number of steps if the length of an episode is unknown."""


@dataclass(frozen=True)
class Film:
    """A written film."""

    file: Path
    steps: int
    returns: dict[str, float]
    """Return of each task during the film."""


def film(
    run: Path | str,
    *,
    at: int | None = None,
    out: Path | str | None = None,
    trust: bool = False,
    stages: Stages | None = None,
    **options: Any,
) -> Film:
    """Film an episode of a run's agent on its task, or of a pre-trained agent with a skill.

    Args:
        run: Folder of a pre-training or a finetuning, or a bundled agent (`"walker"`).
        at: Use the weights of this step's milestone or checkpoint.
        out: The file: .mp4, .gif or .webp; by default `pictures/film.mp4` in the run's folder.
        trust: Allow the environment in the run's config.json to import a Python module.
        stages: Shows progress; by default none is shown.
        **options: Fields of `FilmOptions` by name.

    Returns:
        The file, the number of steps and the return of each task.

    Example:
        ```python
        film = cic.film("walker", out="walker.mp4", seconds=2.0)
        print(film.file, film.steps, film.returns)
        ```
    """
    asked, stages = with_fields(FilmOptions(), options), stages or Stages("cic film", quiet=True)
    file = _file(Run(run), out)
    with stages("loading the agent"):
        opened = Run(run)
        agent = load(run, at=at)
        check_source(opened, config_of(opened), trust)
    name, skill = _skill(agent, asked)
    env = envs.make(_environment(opened, asked.task), num_envs=1, seed=asked.seed, pictures=True)
    try:
        limit = env.episode_length or MAX_STEPS
        if asked.seconds is not None:
            limit = recording.seconds_to_steps(env, asked.seconds)
        frames, rate = recording.frame_steps(env, limit)
        with stages("playing", limit) as tick:
            played = recording.record(agent, env, skill[None], [asked.seed], (asked.width, asked.height), frames, tick)
        frames = [step for step in frames if step <= played.episodes.lengths[0]]
        heading = f"{env.name}, {get_objective(config_of(opened).objective).title}{name}"
        with stages("film", len(frames)) as tick:
            shots = recording.episode_film(played, frames, heading, _tasks(env), tick)
            recording.write_film(shots, rate, file)
    finally:
        env.close()
    returns = {shown: float(played.episodes.returns[shown][0]) for shown in _tasks(env)}
    return Film(file, int(played.episodes.lengths[0]), returns)


def _file(run: Run, out: Path | str | None) -> Path:
    """Return the output file; an unsupported format is an error before the work starts."""
    if out is None:
        refuse_bundled(run.path)
    file = Path(out) if out is not None else run.path / "pictures" / "film.mp4"
    recording.check_format(file)
    return file


def _skill(agent: Agent, asked: FilmOptions) -> tuple[str, Array]:
    """Return the text of the skill in the heading, and the skill."""
    space = agent.objective.skills
    if asked.skill is not None:
        own = space.check(asked.skill)
    elif agent.skill is not None:
        own = agent.skill
    else:
        own = space.sample(1, np.random.default_rng(asked.seed))[0]
    return (f", skill {skill_choice.skill_name(space, own)}" if space.dim else ""), own


def _environment(run: Run, task: str | None) -> str:
    name: str = config_of(run).environment
    if task is None:
        return name
    if not config_of(run).intrinsic:
        raise UserError(f"{run.path} learned {name}: omit `task`")
    domain, _ = envs.split_name(name)
    known = envs.domains().get(domain)
    if known is None:
        raise UserError(f"{name} has no named tasks: omit `task`")
    short = task.removeprefix(f"{domain}-")
    if short not in known.tasks:
        raise unknown(f"task of {domain}", task, known.tasks)
    return f"{domain}-{short}"


def _tasks(env: VectorEnv) -> tuple[str, ...]:
    """Return the tasks whose returns are shown: that of the environment, or every task of a domain."""
    return env.tasks if env.tasks and env.task is None else ("reward",)
