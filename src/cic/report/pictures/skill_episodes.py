"""Episodes of several skills, and the table of their returns, distances and visited cells."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cic import envs
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.learning.objectives import get_objective
from cic.report.pictures import trajectory_plots
from cic.report.pictures.options import SkillsOptions
from cic.report.pictures.skill_choice import ShownSkills
from cic.report.pictures.trajectory_plots import TrajectoryPanel
from cic.runs.folder import Run
from cic.training.evaluation import Coverage, Rollout, plane_cells
from cic.training.loading import config_of


@dataclass(frozen=True)
class SkillEpisodes:
    """The played episodes, one per skill or initial state."""

    run: Run
    agent: Agent
    env: VectorEnv
    asked: SkillsOptions
    shown: ShownSkills
    episodes: Rollout

    @cached_property
    def panels(self) -> list[TrajectoryPanel]:
        return trajectory_plots.panels(self.env, self.episodes.observations, self.episodes.physics)

    @property
    def lines(self) -> list[npt.NDArray[np.float64]]:
        return [np.stack(line, axis=1) for line in self.panels[0].lines]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks whose returns are shown."""
        return (self.env.task,) if self.env.task else self.env.tasks or ("reward",)

    @property
    def method(self) -> str:
        return get_objective(config_of(self.run).objective).title

    @property
    def heading(self) -> str:
        count, name = len(self.shown.names), self.env.name
        if self.shown.noun == "start":
            method = "from scratch" if self.method == "DDPG" else self.method
            return f"{name}: the policy ({method}) from {count} initial states"
        what = f"skill {self.shown.names[0]}" if count == 1 else f"{count} skills"
        return f"{name}: {what} ({self.method})"

    @property
    def colours(self) -> list[trajectory_plots.Colour]:
        return trajectory_plots.colours(self.shown.colours, len(self.shown.names))


def table(found: SkillEpisodes) -> tuple[list[str], list[list[Any]], list[str]]:
    """Return header and rows with the returns, the distance and the visited cells of each skill, and notes."""
    env, observations = found.env, found.episodes.observations
    together = Coverage(env.coverage, found.agent.spaces.obs)
    panel, rows = found.panels[0], []
    for index, (name, seen, line) in enumerate(zip(found.shown.names, observations, panel.lines, strict=True)):
        own = Coverage(env.coverage, found.agent.spaces.obs)
        own.add(seen)
        together.add(seen)
        returns = [float(found.episodes.returns[task][index]) for task in found.tasks]
        rows.append([name, *returns, _distance(panel, line), own.cells])
    header = [found.shown.noun or "skill", *found.tasks, _distance_name(panel), "cells"]
    rows.append(["together", *(["-"] * (len(header) - 2)), together.cells])
    info = envs.domains().get(env.domain)
    if info is not None and info.cell is not None:
        header.append(f"{info.cell:g}×{info.cell:g}")
        for row, part in zip(rows, [*([one] for one in observations), observations], strict=True):
            row.append(plane_cells(part, info.plane, info.cell))
    distance = "length of the path" if panel.plane else "difference between the last and the first step"
    return (
        header,
        rows,
        [
            f"Visited: {together.fraction:.1%} of {together.of}.",
            f"{_distance_name(panel)}: {distance}.",
        ],
    )


def _distance(panel: TrajectoryPanel, line: tuple[Any, Any]) -> float:
    if not panel.plane:
        return float(line[1][-1] - line[1][0])
    return float(np.linalg.norm(np.diff(np.stack(line, axis=1), axis=0), axis=1).sum())


def _distance_name(panel: TrajectoryPanel) -> str:
    if not panel.plane:
        return panel.y
    unit = panel.y.rpartition(" (")[2].rstrip(")") if panel.y.endswith(")") else ""
    return f"path ({unit})" if unit else "path"


def write_csv(path: Path, found: SkillEpisodes, header: list[str], rows: list[list[Any]]) -> Path:
    """Write the table with the vector of each skill, in the form that the setting `skill` accepts."""
    vectors = [" ".join(repr(float(value)) for value in skill) for skill in found.shown.skills]
    vectors += [""] * (len(rows) - len(vectors))
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*header, "vector"])
        writer.writerows([*row, vector] for row, vector in zip(rows, vectors, strict=True))
    return path
