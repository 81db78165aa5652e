"""Appendix "need for larger skill spaces": few discrete skills reach few states, as many as states memorise them.

The paper argues with a 10×10 gridworld; here agents are trained in it. With discrete skills, DIAYN is the first
decomposition, H(z) − H(z|τ); DADS and SMM (with the sign of its own paper) are the second, H(τ) − H(τ|z).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from cic.api import load
from cic.envs.gridworld import SIZE
from cic.experiments.experiment import Experiment, ExperimentResult, by_scale
from cic.experiments.experiment_runs import ExperimentRun, ExperimentRuns
from cic.experiments.panels import dots_panel, mean_text
from cic.report.figures import Panel, Plot
from cic.report.tables import Table
from cic.runs.folder import Run
from cic.training.loading import open_env

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNITS = {"visited": "of 100", "settled": "of 100", "information": "I(s; z) / log |Z|"}
STARTS = list(itertools.product((SIZE // 2 - 1, SIZE // 2), repeat=2))
"""The four cells in the middle, where episodes start."""


def measure_cells(run: Path, scale: str) -> dict[str, Any]:
    """Record the cell of each skill at each step of an episode from each start, under the mean action."""
    agent = load(run)
    skills = np.eye(agent.objective.skills.dim, dtype=np.float32)
    env = open_env(Run(run), num_envs=len(skills) * len(STARTS), seed=0)
    try:
        env.reset(seed=0)
        state = env.state()
        state["cells"] = np.tile(np.array(STARTS), (len(skills), 1))
        env.restore(state)
        obs = (state["cells"] * (2.0 / (SIZE - 1)) - 1.0).astype(np.float32)
        chosen, seen = np.repeat(skills, len(STARTS), axis=0), []
        for _ in range(env.episode_length or 0):
            obs = env.step(agent.act(obs, chosen)).obs
            seen.append(env.physics().astype(int))
    finally:
        env.close()
    paths = np.stack(seen, axis=1) @ np.array([1, SIZE])  # (skills × starts, steps): the number of a cell
    return {"paths": paths.reshape(len(skills), len(STARTS), -1).tolist()}


def information(places: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Return I(s; z) and its maximum, log |Z|, in nats, of (skills, observations of a cell); skills are uniform."""
    joint = np.stack([np.bincount(row, minlength=SIZE * SIZE) / row.size for row in places]) / len(places)
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    there = joint > 0
    return float((joint[there] * np.log(joint[there] / apart[there])).sum()), math.log(len(places))


class GridworldSkills(Experiment):
    name = "gridworld"
    title = "Few skills reach few states"
    shows = "the gridworld of the appendix"
    question = "How many of 100 states do four discrete skills reach, and how many do 100 skills reach?"
    claim = (
        "Four discrete skills can maximise the mutual information by going to four neighbouring states, so that only "
        "four of the hundred states are reached, with either decomposition; with 100 skills the agent could memorise "
        "the states one by one."
    )
    domains = by_scale(("gridworld",), ("gridworld",), ("gridworld",))
    own_domain = True
    measurements = {"gridworld": measure_cells}  # noqa: RUF012
    pretrainings = {  # noqa: RUF012
        "DIAYN, 4 skills": {"objective": "diayn", "skill_dim": 4},
        "DADS, 4 skills": {"objective": "dads", "skill_dim": 4, "skill_kind": "onehot", "preset": "urlb"},
        "SMM, 4 skills": {"objective": "smm", "skill_dim": 4, "skill_term": "paper"},
        "DIAYN, 100 skills": {"objective": "diayn", "skill_dim": 100},
    }
    lengths: ClassVar[Mapping[str, dict[str, Any]]] = by_scale(
        {}, {"steps": 20_000, "hidden": 64, "batch": 128, "compile": "off"}, {"steps": 200_000}
    )

    def pretrainings_at(self, scale: str) -> Mapping[str, Mapping[str, Any]]:
        return {variant: {**self.lengths[scale], **settings} for variant, settings in self.pretrainings.items()}

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        runs = {v: [m for m in found.of(v) if "gridworld" in m.measured] for v in found.variants}
        data = [_row(member) for members in runs.values() for member in members]
        columns = {"visited": "States visited", "settled": "States settled in", "information": "Information"}
        values = {c: {v: [r[c] for r in data if r["variant"] == v] for v in found.variants} for c in columns}
        panels = [dots_panel(found, t, values[c], UNITS[c]) for c, t in columns.items()]
        numbers = Plot(
            f"{self.name}_numbers",
            "States reached",
            "A dot per run, mean ± standard error. Settled: in the second half of an episode.",
            tuple(panels),
            {},
            3,
            (2.2, 1.9),
            (3.8, 2.1),
            1.0,
        )
        boards = Plot(
            self.name,
            self.title,
            "Where the skills of the first seed are in the second half of an episode, a colour per "
            "skill; a fainter cell holds several skills. Crosses: the four cells where episodes begin.",
            tuple(_board(variant, members[:1]) for variant, members in runs.items()),
            {},
            4,
            (1.75, 1.9),
            (2.6, 2.6),
        )
        lines = [[v, *(mean_text(values[c][v]) for c in columns)] for v in found.variants]
        table = Table(
            "gridworld",
            self.title,
            "Means ± standard errors over seeds.",
            ("Skills", *columns.values()),
            lines,
            records=data,
        )
        parts = "; ".join(
            f"{v} visit {mean_text(values['visited'][v])} and settle in {mean_text(values['settled'][v])}"
            for v in found.variants
        )
        return ExperimentResult((boards, numbers), f"Of 100 states: {parts}.", (table,), data)


def _row(member: ExperimentRun) -> dict[str, Any]:
    paths = np.array(member.measured["gridworld"]["paths"])
    late = paths[..., paths.shape[-1] // 2 :].reshape(len(paths), -1)
    found, most = information(late)
    return {
        "variant": member.variant,
        "seed": member.seed,
        "visited": len(np.unique(paths)),
        "settled": len(np.unique(late)),
        "information": found / most,
        "skills": len(paths),
    }


def _board(variant: str, members: list[ExperimentRun]) -> Panel:
    def draw(axes: Axes, _: bool) -> None:
        from matplotlib import colormaps
        from matplotlib.patches import Rectangle

        axes.set(xlim=(-0.5, SIZE - 0.5), ylim=(-0.5, SIZE - 0.5), xticks=[], yticks=[], aspect="equal")
        axes.set_xticks(np.arange(SIZE + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(SIZE + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="#E3E3E3")
        axes.tick_params(which="minor", length=0)
        for x, y in STARTS:
            axes.plot(x, y, "x", color="#999999", markersize=4)
        if not members:
            axes.text(SIZE / 2 - 0.5, SIZE / 2 - 0.5, "no run", ha="center", va="center", color="#888888")
            return
        paths = np.array(members[0].measured["gridworld"]["paths"])
        late = paths[..., paths.shape[-1] // 2 :].reshape(len(paths), -1)
        colours = colormaps["tab10" if len(paths) <= 10 else "turbo"](
            np.arange(len(paths)) if len(paths) <= 10 else np.linspace(0, 1, len(paths))
        )
        for cell in np.unique(late):
            shares = np.array([(row == cell).mean() for row in late])
            colour = colours[int(shares.argmax())]
            alone = shares.max() / shares.sum()
            corner, alpha = (cell % SIZE - 0.5, cell // SIZE - 0.5), 0.25 + 0.6 * alone
            axes.add_patch(Rectangle(corner, 1, 1, color=colour, alpha=alpha, linewidth=0))

    return Panel(variant, draw, f"Cells in which the skills of {variant} settle.")
