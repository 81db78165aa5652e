"""What an agent does, skill by skill: a table, drawings, filmstrips and films.

All skills start from the same state, so that what differs is the skill. A run without skills, and one that has settled
on a skill, shows its policy from several starts instead.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cic import envs
from cic.api import load
from cic.core.types import Array
from cic.learning.agent import Agent
from cic.learning.objectives import SkillSpace
from cic.report.pictures import choosing, drawing
from cic.report.pictures.choosing import Shown
from cic.report.pictures.look import Look
from cic.report.pictures.reels import drawings, films
from cic.report.pictures.watched import Best, Watched
from cic.runs.folder import Run
from cic.runs.links import refuse_links
from cic.training.evaluation import Coverage, plane_cells, rollout
from cic.training.loading import check_source, config_of, open_env
from cic.training.progress import Stages
from cic.training.skill_variance import Diagnosis, diagnose


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
        found = Watched(opened, agent, env, asked, shown, seen, starts)
        with stages("drawing"):
            header, rows, notes = _table(found)
            files = [_write_csv(folder / "skills.csv", found, header, rows), *drawings(found, folder, notes)]
        diagnosis, best = _compared(found, stages) if several else (None, [])
    finally:
        env.close()
    if asked.video:
        files += films(found, best, folder, stages)
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


def _table(found: Watched) -> tuple[list[str], list[list[Any]], list[str]]:
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
    rows.append(["together", *(["-"] * (len(header) - 2)), together.cells])
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


def _write_csv(path: Path, found: Watched, header: list[str], rows: list[list[Any]]) -> Path:
    """With each skill's vector, which `--skill` takes."""
    vectors = [" ".join(repr(float(value)) for value in skill) for skill in found.shown.skills]
    vectors += [""] * (len(rows) - len(vectors))
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*header, "vector"])
        writer.writerows([*row, vector] for row, vector in zip(rows, vectors, strict=True))
    return path


# ---- the best of each task -------------------------------------------------------------------------------------


def _compared(found: Watched, stages: Stages) -> tuple[Diagnosis | None, list[Best]]:
    """How much a skill matters, from random skills; the best of them and of those shown for each task."""
    asked, space = found.asked, found.agent.objective.skills
    scores = {task: found.seen.returns[task].reshape(-1, found.starts).mean(axis=1) for task in found.tasks}
    skills, names = found.shown.skills, [found.shown.title(i) for i in range(len(found.shown.skills))]
    diagnosis = None
    if asked.compare > 1 and asked.skill is None:
        tried = choosing.choose(space, asked.compare, "random", asked.seed)
        steps = found.env.episode_length
        with stages(f"{len(tried.skills)} random skills from {asked.starts} starts", steps) as tick:
            name = config_of(found.run).environment
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


# ---- how much a skill matters ----------------------------------------------------------------------------------


def compare(
    run: Path | str, *, count: int = 24, starts: int = 3, seed: int = 0, at: int | None = None, trust: bool = False
) -> Diagnosis:
    """How much a skill matters: whole episodes of random skills (of one-hot skills: all) from several starts."""
    opened, agent = Run(run), load(run, at=at)
    check_source(opened, config_of(opened), trust)
    skills, _ = choose_skills(agent.objective.skills, count, "random", seed)
    return diagnose(agent, config_of(opened).environment, skills, starts=starts, seed=seed)


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
