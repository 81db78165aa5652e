"""`cic skills`: what each skill of an agent does, as a table, trajectory plots, filmstrips and films.

All skills start from the same state, so that only the skill differs. A run without skills, or with a selected skill,
shows its policy from several initial states instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cic.api import load
from cic.core.config import with_fields
from cic.core.errors import UserError
from cic.core.types import Array
from cic.learning.agent import Agent
from cic.learning.objectives import SkillSpace
from cic.report.pictures import skill_choice, trajectory_plots
from cic.report.pictures.options import MAX_TILES, SkillsOptions
from cic.report.pictures.skill_choice import ShownSkills
from cic.report.pictures.skill_episodes import SkillEpisodes, table, write_csv
from cic.report.pictures.skill_films import FilmWriter, SkillFilm, evenly
from cic.runs.bundled import refuse_bundled
from cic.runs.folder import Run
from cic.training.evaluation import rollout
from cic.training.loading import check_source, config_of, open_env
from cic.training.progress import Stages
from cic.training.skill_variance import Diagnosis, diagnose


@dataclass(frozen=True)
class BestSkill:
    """The skill with the highest return on a task, of all that were tried."""

    task: str
    skill: Array
    name: str
    score: float
    """Mean return over the initial states."""


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
    best: list[BestSkill] = field(default_factory=list)


def choose_skills(space: SkillSpace, count: int, how: Literal["grid", "random"], seed: int) -> tuple[Array, list[str]]:
    """Choose skills to show; return them with their names."""
    shown = skill_choice.choose(space, count, how, seed)
    return shown.skills, shown.names


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
    shown = _shown_skills(agent, asked)
    several = shown.noun != "start"
    starts = asked.starts if several else 1
    seeds = [seed for one in (shown.seeds or [asked.seed] * len(shown.skills)) for seed in range(one, one + starts)]
    env = open_env(opened, num_envs=len(seeds), seed=asked.seed, trust=trust)
    try:
        with stages(f"{len(seeds)} episodes", env.episode_length) as tick:
            repeated = np.repeat(shown.skills, starts, axis=0)
            episodes = rollout(agent, env, repeated, seed=seeds, watch=True, at_step=tick)
        found = SkillEpisodes(opened, agent, env, asked, shown, episodes, starts)
        with stages("drawing"):
            header, rows, notes = table(found)
            files = [write_csv(folder / "skills.csv", found, header, rows), *_write_plots(found, folder, notes[0])]
        diagnosis, best = _best_skills(found, stages) if several else (None, [])
    finally:
        env.close()
    if asked.video:
        files += _write_films(found, best, folder, stages)
    return Description(header, rows, found.lines, files, notes, diagnosis, best)


def _shown_skills(agent: Agent, asked: SkillsOptions) -> ShownSkills:
    space = agent.objective.skills
    if asked.skill is not None:
        return skill_choice.single(space, np.array(asked.skill, np.float32))
    if asked.choose == "auto" and (space.kind == "none" or agent.skill is not None):
        return skill_choice.policy(space, agent.skill, asked.starts, asked.seed)
    return skill_choice.choose(space, asked.count, "grid" if asked.choose == "auto" else asked.choose, asked.seed)


# ---- plots and films -------------------------------------------------------------------------------------------------


def _write_plots(found: SkillEpisodes, folder: Path, visited: str) -> list[Path]:
    shown, same = found.shown, "" if found.shown.noun == "start" else ", all from the same initial state"
    caption = [f"Each line is {shown.each}, over a whole episode{same}.", visited]
    if not found.env.drawing:
        caption.append("Both axes are sums of standardised entries of the observation.")
    panels = found.panels(found.firsts)
    files = [trajectory_plots.plot_skills(panels, shown, found.heading, caption, folder / "skills.png")]
    if found.starts > 1:
        chosen = evenly(len(shown.names), 6)
        episodes = [found.firsts[i] + start for i in chosen for start in range(found.starts)]
        heading = f"{found.env.name}: the same skill from {found.starts} initial states ({found.method})"
        titles, tints = [shown.title(i) for i in chosen], [found.colours[i] for i in chosen]
        panel = found.panels(episodes)[0]
        files.append(trajectory_plots.plot_starts(panel, found.starts, titles, tints, heading, folder / "starts.png"))
    return files


def _write_films(found: SkillEpisodes, best: Sequence[BestSkill], folder: Path, stages: Stages) -> list[Path]:
    """Write filmstrips and films; warn if nothing can be rendered."""
    shown, chosen = found.shown, evenly(len(found.shown.names), MAX_TILES)
    seeds = shown.seeds or [found.asked.seed] * len(shown.names)
    task = "reward" if found.env.task or not found.env.tasks else None
    writer = FilmWriter(found.agent, found.env.name, found.asked, folder, stages)
    films = {
        "skills": SkillFilm(
            shown.skills[chosen],
            [seeds[i] for i in chosen],
            [shown.title(i) for i in chosen],
            [found.colours[i] for i in chosen],
            found.heading,
            task,
        )
    }
    if best and len(shown.names) > 1:
        films["best"] = _best_film(found, best)
    files: list[Path] = []
    try:
        for name, film in films.items():
            files += writer.write(name, film)
    except UserError as error:
        warnings.warn(f"no films or filmstrips: {error}", stacklevel=2)
    return files


def _best_film(found: SkillEpisodes, best: Sequence[BestSkill]) -> SkillFilm:
    """Return a film of the best skill for each task; a skill that is best for several tasks appears once."""
    by_skill: dict[bytes, list[BestSkill]] = {}
    for one in best:
        by_skill.setdefault(one.skill.tobytes(), []).append(one)
    groups = list(by_skill.values())
    return SkillFilm(
        np.stack([same[0].skill for same in groups]),
        [found.asked.seed] * len(groups),
        [f"{', '.join(f'{one.task} {one.score:.0f}' for one in same)}: {same[0].name}" for same in groups],
        trajectory_plots.colours("categorical", len(groups)),
        f"{found.env.name}: the best skill for each task and its return without finetuning, mean over "
        f"{found.asked.starts} initial states ({found.method})",
        None,
    )


# ---- how much a skill matters ----------------------------------------------------------------------------------------


def _best_skills(found: SkillEpisodes, stages: Stages) -> tuple[Diagnosis | None, list[BestSkill]]:
    """Measure how much the skill matters with random skills, and find the best skill for each task."""
    asked, space = found.asked, found.agent.objective.skills
    scores = {task: found.episodes.returns[task].reshape(-1, found.starts).mean(axis=1) for task in found.tasks}
    skills, names = found.shown.skills, [found.shown.title(i) for i in range(len(found.shown.skills))]
    diagnosis = None
    if asked.compare > 1 and asked.skill is None:
        tried = skill_choice.choose(space, asked.compare, "random", asked.seed)
        steps = found.env.episode_length
        with stages(f"{len(tried.skills)} random skills from {asked.starts} initial states", steps) as tick:
            name = config_of(found.run).environment
            diagnosis = diagnose(
                found.agent, name, tried.skills, starts=asked.starts, seed=asked.seed, at_step=lambda _: tick()
            )
        skills = np.concatenate([skills, tried.skills])
        names += [tried.title(i) for i in range(len(tried.skills))]
        scores = {task: np.concatenate([scores[task], diagnosis.returns[task].mean(axis=1)]) for task in scores}
    if len(skills) < 2:
        return diagnosis, []
    places = {task: int(np.argmax(returns)) for task, returns in scores.items()}
    return diagnosis, [BestSkill(task, skills[i], names[i], float(scores[task][i])) for task, i in places.items()]


def compare(
    run: Path | str, *, count: int = 24, starts: int = 3, seed: int = 0, at: int | None = None, trust: bool = False
) -> Diagnosis:
    """Measure how much the skill matters, with episodes of random skills from several initial states."""
    opened, agent = Run(run), load(run, at=at)
    check_source(opened, config_of(opened), trust)
    skills, _ = choose_skills(agent.objective.skills, count, "random", seed)
    return diagnose(agent, config_of(opened).environment, skills, starts=starts, seed=seed)


def comparison_table(found: Diagnosis) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: the variance that the skill explains, and the returns without finetuning."""
    header = ["of the variance in", "a skill explains", "90 % interval", "mean skill", f"best of {found.skills}"]
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
