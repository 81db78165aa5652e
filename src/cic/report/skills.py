"""`cic skills`: what each skill of an agent does, as a table, trajectory plots, filmstrips and films.

All skills start from the same state, so that only the skill differs. A run without skills, or with a selected skill,
shows its policy from several initial states instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.api import load
from cic.core.config import with_fields
from cic.core.errors import UserError
from cic.learning.agent import Agent
from cic.report.pictures import skill_choice, trajectory_plots
from cic.report.pictures.options import SkillsOptions
from cic.report.pictures.skill_choice import ShownSkills
from cic.report.pictures.skill_episodes import SkillEpisodes, table, write_csv
from cic.report.pictures.skill_films import write_films
from cic.runs.bundled import refuse_bundled
from cic.runs.folder import Run
from cic.training.evaluation import rollout
from cic.training.loading import check_source, config_of, open_env
from cic.training.progress import Stages
from cic.training.skill_variance import Diagnosis, diagnose, most_different

CANDIDATES = 96
"""Random skills of which the most different ones are shown."""


@dataclass(frozen=True)
class Description:
    """One row per skill or initial state, and the files that were written."""

    header: list[str]
    rows: list[list[Any]]
    paths: list[npt.NDArray[np.float64]]
    """Line of each row in the first panel of the plot, (T + 1, 2)."""
    files: list[Path]
    notes: list[str]
    """Explanations of the columns and of the visited fraction."""
    diagnosis: Diagnosis | None = None


def skills(
    run: Path | str,
    *,
    at: int | None = None,
    out: Path | str | None = None,
    trust: bool = False,
    stages: Stages | None = None,
    **options: Any,
) -> Description:
    """Show what each skill of a run does: a table, figures and films.

    A run without skills, or with a selected skill, shows its policy from several initial states instead.

    Args:
        run: Folder of a pre-training or a finetuning, or a bundled agent (`"walker"`).
        at: Use the weights of this step's milestone or checkpoint.
        out: Folder for the table, the figures and the films; by default `pictures/` in the run's folder.
        trust: Allow the environment in the run's config.json to import a Python module.
        stages: Shows progress; by default none is shown.
        **options: Fields of `SkillsOptions` by name.

    Returns:
        The table, one row per skill or initial state, and the files that were written.

    Example:
        ```python
        found = cic.skills("walker", out="pictures", count=3, video=False)
        print(found.header, *found.rows, sep="\\n")
        ```
    """
    asked, stages = with_fields(SkillsOptions(), options), stages or Stages("cic skills", quiet=True)
    with stages("loading the agent"):
        opened = Run(run)
        agent = load(run, at=at)
    if out is None:
        refuse_bundled(opened.path)
    folder = Path(out) if out is not None else opened.path / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    sampled = agent.objective.skills.kind != "onehot"
    different = asked.choose == "different" and sampled and asked.skill is None
    shown = _different(agent, opened, asked, trust) if different else _shown_skills(agent, asked)
    seeds = list(shown.seeds) or [asked.seed] * len(shown.skills)
    env = open_env(opened, num_envs=len(seeds), seed=asked.seed, trust=trust)
    try:
        with stages(f"{len(seeds)} episodes", env.episode_length) as tick:
            episodes = rollout(agent, env, shown.skills, seed=seeds, watch=True, at_step=tick)
        found = SkillEpisodes(opened, agent, env, asked, shown, episodes)
        with stages("drawing"):
            header, rows, notes = table(found)
            files = [write_csv(folder / "skills.csv", found, header, rows), _write_plot(found, folder, notes[0])]
    finally:
        env.close()
    diagnosis = None
    if shown.noun != "start" and asked.compare > 1 and asked.skill is None:
        with stages(f"{asked.compare} random skills from {asked.starts} initial states", env.episode_length) as tick:
            diagnosis = _diagnose(agent, opened, asked, tick)
    if asked.video:
        try:
            files += write_films(found, seeds, folder, stages)
        except UserError as error:
            warnings.warn(f"no films or filmstrips: {error}", stacklevel=2)
    return Description(header, rows, found.lines, files, notes, diagnosis)


def _shown_skills(agent: Agent, asked: SkillsOptions) -> ShownSkills:
    space = agent.objective.skills
    if asked.skill is not None:
        return skill_choice.single(space, np.array(asked.skill, np.float32))
    if asked.choose == "auto" and (space.kind == "none" or agent.skill is not None):
        return skill_choice.policy(space, agent.skill, asked.starts, asked.seed)
    return skill_choice.choose(space, asked.count, "random" if asked.choose == "random" else "grid", asked.seed)


def _different(agent: Agent, run: Run, asked: SkillsOptions, trust: bool) -> ShownSkills:
    """Play random skills from the initial state of the pictures; return those that behave most differently."""
    drawn = skill_choice.choose(agent.objective.skills, max(CANDIDATES, asked.count), "random", asked.seed)
    env = open_env(run, num_envs=len(drawn.skills), seed=asked.seed, trust=trust)
    try:
        paths = rollout(agent, env, drawn.skills, seed=[asked.seed] * len(drawn.skills), keep=True).observations
    finally:
        env.close()
    behaviour = np.stack([path[len(path) // 2 :].astype(np.float64).mean(axis=0) for path in paths])
    spread = behaviour.std(axis=0)
    kept = most_different(behaviour / np.where(spread > 1e-6, spread, 1.0), asked.count)
    each = f"one of the {len(kept)} most different of {len(drawn.skills)} random skills (seed {asked.seed})"
    return ShownSkills(drawn.skills[kept], [drawn.names[index] for index in kept], each, noun=drawn.noun)


def _write_plot(found: SkillEpisodes, folder: Path, visited: str) -> Path:
    same = "" if found.shown.noun == "start" else ", all from the same initial state"
    caption = [f"Each line is {found.shown.each}, over a whole episode{same}.", visited]
    if not found.env.drawing:
        caption.append("Both axes are sums of standardised entries of the observation.")
    return trajectory_plots.plot_skills(found.panels, found.shown, found.heading, caption, folder / "skills.png")


# ---- how much a skill matters ----------------------------------------------------------------------------------------


def compare(
    run: Path | str, *, count: int = 24, starts: int = 3, seed: int = 0, at: int | None = None, trust: bool = False
) -> Diagnosis:
    """Measure how much the skill matters, with episodes of random skills from several initial states."""
    opened = Run(run)
    check_source(opened, config_of(opened), trust)
    return _diagnose(load(run, at=at), opened, SkillsOptions(compare=count, starts=starts, seed=seed))


def _diagnose(agent: Agent, run: Run, asked: SkillsOptions, tick: Callable[[], object] = lambda: None) -> Diagnosis:
    tried = skill_choice.choose(agent.objective.skills, asked.compare, "random", asked.seed).skills
    name = config_of(run).environment
    return diagnose(agent, name, tried, starts=asked.starts, seed=asked.seed, at_step=lambda _: tick())


def comparison_table(found: Diagnosis) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: the variance that the skill explains, and the returns without finetuning."""
    header = ["variance of", "due to the skill", "90 % interval", "mean return", f"best of {found.skills}"]
    rows = [
        [
            name,
            f"{share.value:.0%}",
            f"{share.low:.0%} to {share.high:.0%}",
            f"{found.typical[name]:.0f}" if name in found.typical else "",
            f"{found.best[name]:.0f}" if name in found.best else "",
        ]
        for name, share in found.shares.items()
    ]
    return header, rows
