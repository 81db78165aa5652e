"""What an agent does, skill by skill: a table, drawings, filmstrips and films.

All skills start from the same state, so that what differs is the skill. A run without skills, and one that has settled
on a skill, shows its policy from several starts instead.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cic import envs
from cic.api import load
from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.learning.objectives import SkillSpace, get_objective
from cic.report.pictures import choosing, drawing, filming
from cic.report.pictures.choosing import Choose, Shown
from cic.runs.folder import Run
from cic.runs.links import refuse_links
from cic.training.diagnosis import Diagnosis, diagnose
from cic.training.evaluation import Coverage, Rollout, plane_cells, rollout
from cic.training.opening import check_source, open_env
from cic.training.phases import config_of, phase_of
from cic.training.progress import Stages

MOST = 500
"""Skills in one picture."""
TILES = 25
"""Of them in a film."""
ROWS = 12
"""Of them in a filmstrip."""
TILE = (200, 150)


@dataclass(frozen=True)
class Best:
    """The skill that a task pays most, of all that were tried."""

    task: str
    skill: Array
    name: str
    score: float
    """Mean return over the starts."""


@dataclass(frozen=True)
class Description:
    """One row per skill or start, and what was drawn."""

    header: list[str]
    rows: list[list[Any]]
    paths: list[npt.NDArray[np.float64]]
    """Each one's line in the first panel of the picture, (T + 1, 2)."""
    files: list[Path]
    notes: list[str]
    """What the columns and the fraction of coverage are of."""
    diagnosis: Diagnosis | None = None
    best: list[Best] = field(default_factory=list)


def choose_skills(space: SkillSpace, count: int, how: Literal["grid", "random"], seed: int) -> tuple[Array, list[str]]:
    """Skills to look at, and their names."""
    shown = choosing.choose(space, count, how, seed)
    return shown.skills, shown.names


@dataclass(frozen=True)
class Look:
    """How skills are shown."""

    count: int = 9
    """How many skills are shown; of one-hot skills all."""
    choose: Choose = "auto"
    """grid: those with names (values, directions); random: drawn as in pre-training; auto: a grid, or the policy of a
    run that has no skills or has chosen one."""
    skill: tuple[float, ...] | None = None
    """This one alone: a number per dimension, one for all of them, or the place of a one-hot skill."""
    starts: int = 3
    """Initial states: the first for the picture of skills, all for that of starts and for what the best skills are."""
    seed: int = 0
    """Of the initial states and of the random skills."""
    compare: int = 24
    """Random skills that are tried as well, to find the best of each task and say how much a skill matters; 0: none."""
    seconds: float = 8.0
    """Of films and filmstrips, in the simulated world."""
    columns: int | None = None
    """Of the film; as square as it can be by default."""
    video: bool = True
    """Also make filmstrips and films, where OpenGL is there."""

    def __post_init__(self) -> None:
        for name, least, most in (("count", 1, MOST), ("starts", 1, 50), ("compare", 0, MOST), ("columns", 1, TILES)):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UserError(f"{name} must be between {least} and {most}, not {value:,}")
        if not 0 < self.seconds <= 3600:
            raise UserError(f"seconds must be above 0 and at most 3,600, not {self.seconds:g}")


def describe(
    run: Path | str,
    *,
    at: int | None = None,
    out: Path | str | None = None,
    trust: bool = False,
    stages: Stages | None = None,
    **look: Any,
) -> Description:
    """Watch a run's skills, or its policy, and draw them into the run's `pictures/` or `out`.

    What else can be asked for is in `Look`; `trust` as in `cic.evaluate`.
    """
    asked, stages = Look(**look), stages or Stages("cic skills", quiet=True)
    with stages("loading the agent"):
        opened = Run(run)
        agent = load(run, at=at)
    folder = _folder(opened, out)
    shown = _shown(agent, asked)
    several = shown.noun != "start"
    starts = asked.starts if several else 1
    seeds = [seed for one in (shown.seeds or [asked.seed] * len(shown.skills)) for seed in range(one, one + starts)]
    env = open_env(opened, num_envs=len(seeds), seed=asked.seed, trust=trust)
    try:
        with stages(f"{len(seeds)} episodes", env.episode_length) as tick:
            seen = rollout(agent, env, np.repeat(shown.skills, starts, axis=0), seed=seeds, watch=True, at_step=tick)
        found = _Watched(opened, agent, env, asked, shown, seen, starts)
        with stages("drawing"):
            header, rows, notes = _table(found)
            files = [_write_csv(folder / "skills.csv", found, header, rows), *_drawings(found, folder, notes)]
        diagnosis, best = _compared(found, stages) if several else (None, [])
    finally:
        env.close()
    if asked.video:
        files += _films(found, best, folder, stages)
    return Description(header, rows, found.lines, files, notes, diagnosis, best)


def _folder(run: Run, out: Path | str | None) -> Path:
    if out is None:
        refuse_links(run.path)
    folder = Path(out) if out is not None else run.path / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _shown(agent: Agent, asked: Look) -> Shown:
    space = agent.objective.skills
    if asked.skill is not None:
        return choosing.one(space, np.array(asked.skill, np.float32))
    if asked.choose == "auto" and (space.kind == "none" or agent.skill is not None):
        return choosing.policy(space, agent.skill, asked.starts, asked.seed)
    return choosing.choose(space, asked.count, "grid" if asked.choose == "auto" else asked.choose, asked.seed)


# ---- what was seen ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Watched:
    """Episodes: for each skill one from every start, the first start first."""

    run: Run
    agent: Agent
    env: VectorEnv
    asked: Look
    shown: Shown
    seen: Rollout
    starts: int

    @property
    def firsts(self) -> list[int]:
        """Of each skill, the episode from the first start."""
        return list(range(0, len(self.seen.lengths), self.starts))

    def panels(self, episodes: Sequence[int]) -> list[drawing.Panel]:
        obs, physics = self.seen.observations, self.seen.physics
        return drawing.panels(self.env, [obs[i] for i in episodes], [physics[i] for i in episodes])

    @property
    def lines(self) -> list[npt.NDArray[np.float64]]:
        return [np.stack(line, axis=1) for line in self.panels(self.firsts)[0].lines]

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.env.tasks or ("reward",)

    @property
    def method(self) -> str:
        return get_objective(config_of(self.run).objective).title

    @property
    def heading(self) -> str:
        count, name = len(self.shown.names), self.env.name
        if self.shown.noun == "start":
            own = "from scratch" if self.method == "DDPG" else self.method
            return f"{name}: the policy ({own}) from {count} starts"
        what = f"skill {self.shown.names[0]}" if count == 1 else f"what {count} skills do"
        return f"{name}: {what} ({self.method})"


def _table(found: _Watched) -> tuple[list[str], list[list[Any]], list[str]]:
    """Per skill its returns, how far it goes and how many cells it visits; and what the columns are of."""
    env, obs = found.env, [found.seen.observations[i] for i in found.firsts]
    together = Coverage(env.coverage, found.agent.spaces.obs)
    panel, rows = found.panels(found.firsts)[0], []
    for index, (name, seen, line) in enumerate(zip(found.shown.names, obs, panel.lines, strict=True)):
        own = Coverage(env.coverage, found.agent.spaces.obs)
        own.add(seen)
        together.add(seen)
        paid = [float(found.seen.returns[task][found.firsts[index]]) for task in found.tasks]
        rows.append([name, *paid, _way(panel, line), own.cells])
    header = [found.shown.noun or "skill", *found.tasks, _way_name(panel), "cells"]
    rows.append(["together", *([""] * (len(header) - 2)), together.cells])
    info = envs.domains().get(env.domain)
    if info is not None and info.cell is not None:
        header.append(f"{info.cell:g}×{info.cell:g}")
        for row, part in zip(rows, [*([one] for one in obs), obs], strict=True):
            row.append(plane_cells(part, info.plane, info.cell))
    way = "length of the path" if panel.plane else "from the first to the last step"
    notes = [
        f"Visited: {together.fraction:.1%} of {together.of}.",
        f"{_way_name(panel)}: {way}.",
    ]
    return header, rows, notes


def _way(panel: drawing.Panel, line: tuple[Any, Any]) -> float:
    if not panel.plane:
        return float(line[1][-1] - line[1][0])
    return float(np.linalg.norm(np.diff(np.stack(line, axis=1), axis=0), axis=1).sum())


def _way_name(panel: drawing.Panel) -> str:
    if not panel.plane:
        return panel.y
    unit = panel.y.rpartition(" (")[2].rstrip(")") if panel.y.endswith(")") else ""
    return f"path ({unit})" if unit else "path"


def _write_csv(path: Path, found: _Watched, header: list[str], rows: list[list[Any]]) -> Path:
    """With each skill's vector, which `--skill` takes."""
    vectors = [" ".join(repr(float(value)) for value in skill) for skill in found.shown.skills]
    vectors += [""] * (len(rows) - len(vectors))
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*header, "vector"])
        writer.writerows([*row, vector] for row, vector in zip(rows, vectors, strict=True))
    return path


# ---- drawn -----------------------------------------------------------------------------------------------------


def _drawings(found: _Watched, folder: Path, notes: Sequence[str]) -> list[Path]:
    panels = found.panels(found.firsts)
    same = "" if found.shown.noun == "start" else ", all from the same initial state"
    said = [f"Each line is {found.shown.each}, over a whole episode{same}. {drawing.marks(panels)}", notes[0]]
    files = [drawing.draw(panels, found.shown, found.heading, said, folder / "skills.png")]
    if found.starts > 1:
        chosen = _evenly(len(found.shown.names), 6)
        tints = drawing.colours(found.shown.order, len(found.shown.names))
        every = [range(first, first + found.starts) for first in (found.firsts[i] for i in chosen)]
        flat = found.panels([episode for group in every for episode in group])[0]
        groups = [flat.lines[i : i + found.starts] for i in range(0, len(flat.lines), found.starts)]
        parts = [drawing.Panel(flat.x, flat.y, lines, flat.plane, "", flat.limits) for lines in groups]
        titles = [found.shown.title(i) for i in chosen]
        heading = f"{found.env.name}: the same skill from {found.starts} starts ({found.method})"
        files.append(drawing.draw_starts(parts, titles, [tints[i] for i in chosen], heading, folder / "starts.png"))
    return files


def _evenly(count: int, most: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(0, count - 1, min(count, most)).round()})


# ---- the best of each task -------------------------------------------------------------------------------------


def _compared(found: _Watched, stages: Stages) -> tuple[Diagnosis | None, list[Best]]:
    """How much a skill matters, from random skills; the best of them and of those shown for each task."""
    asked, space = found.asked, found.agent.objective.skills
    scores = {task: found.seen.returns[task].reshape(-1, found.starts).mean(axis=1) for task in found.tasks}
    skills, names = found.shown.skills, [found.shown.title(i) for i in range(len(found.shown.skills))]
    diagnosis = None
    if asked.compare > 1 and asked.skill is None:
        tried = choosing.choose(space, asked.compare, "random", asked.seed)
        steps = found.env.episode_length
        with stages(f"{len(tried.skills)} random skills from {asked.starts} starts", steps) as tick:
            name = phase_of(found.run).environment(config_of(found.run))
            diagnosis = diagnose(
                found.agent, name, tried.skills, starts=asked.starts, seed=asked.seed, at_step=lambda _: tick()
            )
        skills = np.concatenate([skills, tried.skills])
        names += [tried.title(i) for i in range(len(tried.skills))]
        scores = {task: np.concatenate([scores[task], diagnosis.returns[task].mean(axis=1)]) for task in scores}
    if len(skills) < 2:
        return diagnosis, []
    best = []
    for task, paid in scores.items():
        index = int(np.argmax(paid))
        best.append(Best(task, skills[index], names[index], float(paid[index])))
    return diagnosis, best


# ---- filmed ----------------------------------------------------------------------------------------------------


def _films(found: _Watched, best: Sequence[Best], folder: Path, stages: Stages) -> list[Path]:
    """Filmstrips and films; a warning in their place where nothing can be rendered."""
    chosen = _evenly(len(found.shown.names), TILES)
    tints = drawing.colours(found.shown.order, len(found.shown.names))
    titles = [found.shown.title(i) for i in chosen]
    seeds = [(found.shown.seeds or [found.asked.seed] * len(found.shown.names))[i] for i in chosen]
    task = "reward" if found.env.task or not found.env.tasks else None  # what the environment itself pays
    files: list[Path] = []
    try:
        reel = _Reel(found, stages, folder)
        tinted = [tints[i] for i in chosen]
        files += reel.shoot("skills", found.shown.skills[chosen], seeds, titles, tinted, found.heading, task)
        if len(best) > 1 or (best and len(found.shown.names) > 1):
            said = [f"{one.task}: return {one.score:.0f} by {one.name}" for one in best]
            heading = f"{found.env.name}: the best skill of each task, without finetuning ({found.method})"
            skills = np.stack([one.skill for one in best])
            tinted = drawing.colours("apart", len(best))
            files += reel.shoot("best", skills, [found.asked.seed] * len(best), said, tinted, heading, None)
    except UserError as error:
        warnings.warn(f"no films or filmstrips: {error}", stacklevel=2)
    return files


@dataclass(frozen=True)
class _Reel:
    """Makes a filmstrip and a film of some skills."""

    found: _Watched
    stages: Stages
    folder: Path

    def shoot(
        self,
        name: str,
        skills: Array,
        seeds: Sequence[int],
        titles: Sequence[str],
        tints: Sequence[Sequence[float]],
        heading: str,
        task: str | None,
    ) -> list[Path]:
        film, strip = (
            self.folder / f"{name}.mp4",
            self.folder / (f"{name}.png" if name != "skills" else "filmstrip.png"),
        )
        filming.check_ending(film)
        asked, own = self.found.asked, self.found.env.name
        env = envs.make(own, num_envs=len(skills), seed=asked.seed, pictures=True)
        try:
            steps = filming.seconds_to_steps(env, asked.seconds)
            moments = filming.strip_steps(env, steps, 8)
            frames, rate = filming.frame_steps(env, steps)
            wanted = {*frames, *(step for moment in moments for step in moment)}
            with self.stages(f"playing {name}", steps) as tick:
                take = filming.play(self.found.agent, env, skills, seeds, TILE, wanted, tick)
            rows = _evenly(len(skills), ROWS)
            with self.stages(f"filmstrip of {name}", len(rows) * len(moments)) as tick:
                picture = filming.filmstrip(take, moments, rows, titles, tints, heading, tick)
                filming.write_picture(picture, strip)
            with self.stages(f"film of {name}", len(frames) * len(skills)) as tick:
                columns = asked.columns or int(np.ceil(np.sqrt(len(skills))))
                shots = filming.grid_film(take, frames, titles, tints, min(columns, len(skills)), task, tick)
                filming.write_film(shots, rate, film)
        finally:
            env.close()
        return [strip, film]


# ---- how much a skill matters ----------------------------------------------------------------------------------


def compare(
    run: Path | str, *, count: int = 24, starts: int = 3, seed: int = 0, at: int | None = None, trust: bool = False
) -> Diagnosis:
    """How much a skill matters: whole episodes of random skills (of one-hot skills: all) from several starts."""
    opened, agent = Run(run), load(run, at=at)
    check_source(opened, config_of(opened), trust)
    skills, _ = choose_skills(agent.objective.skills, count, "random", seed)
    return diagnose(agent, phase_of(opened).environment(config_of(opened)), skills, starts=starts, seed=seed)


def comparison_table(found: Diagnosis) -> tuple[list[str], list[list[str]]]:
    """Header and rows: what the skill explains of each task's return and of the behaviour, and the best without
    finetuning."""
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
