"""Figure "behaviour flow": where a point mass moves from each place, by the value of a skill of one dimension.

In the released code embeddings are as wide as the skill. Normalising a vector of one entry keeps only its sign, so the
contrastive loss has no gradient. So the embeddings have the paper's width of 64. The released loss still collapses to
cosines of −1 for all pairs, where it has no gradient either. So the loss is the InfoNCE of the paper's text.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cic.api import load
from cic.experiments.experiment import Experiment, ExperimentResult, by_scale
from cic.experiments.experiment_runs import ExperimentRuns
from cic.experiments.panels import mean_text
from cic.report.figures import Panel, Plot
from cic.report.tables import many
from cic.runs.folder import Run
from cic.training.loading import open_env

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VALUES, PLACES = by_scale(3, 9, 9), by_scale(5, 11, 11)
SHOWN, WIDTH = 5, 64
EDGE, STEPS = 0.26, 25
"""Of the walls' 0.29, and half a second."""


def measure_flow(run: Path, scale: str) -> dict[str, Any]:
    """Measure how far the mass moves in half a second, from rest at each place of a square lattice, per skill value."""
    agent = load(run)
    side = np.linspace(-EDGE, EDGE, PLACES[scale])
    places = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    env = open_env(Run(run), num_envs=len(places), seed=0)
    values, moved = np.linspace(0, 1, VALUES[scale]), []
    try:
        for value in values:
            env.reset(seed=0)
            state = env.state()
            place = _columns(state["physics"], env.physics()[:, :2])
            state["physics"][:, place : place + 2] = places
            state["table"][:, :2] = places
            env.restore(state)
            skill = np.full((len(places), agent.objective.skills.dim), value, np.float32)
            for _ in range(STEPS):
                env.step(agent.act(env.physics()[:, :4].astype(np.float32), skill))
            moved.append((env.physics()[:, :2] - places).tolist())
    finally:
        env.close()
    return {"values": values.tolist(), "places": places.tolist(), "moved": moved}


def _columns(state: Any, positions: Any) -> int:
    """Return the column of the positions in the simulator's state."""
    for column in range(state.shape[1] - 1):
        if np.array_equal(state[:, column : column + 2], positions):
            return column
    raise AssertionError("the simulator's state lacks its positions")


class Flow(Experiment):
    name = "flow"
    title = "Behaviour flow of a point mass"
    shows = "the flow field of the appendix"
    question = "What does a skill of one dimension do, value by value?"
    claim = (
        "The point mass learns skills of continuous motion whose direction changes with the value of the skill: near "
        "the origin they span all directions, near the edges they avoid the walls."
    )
    seeds = by_scale(1, 3, 3)
    domains = by_scale(("point_mass",), ("point_mass",), ("point_mass",))
    own_domain = True
    measurements = {"flow": measure_flow}  # noqa: RUF012
    pretrainings = {"CIC": {"skill_dim": 1, "embedding": WIDTH, "loss": "infonce"}}  # noqa: RUF012

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        runs = [member for member in found.of("CIC") if "flow" in member.measured]
        data, panels = [], []
        for member in runs:
            measured = member.measured["flow"]
            places, moved = np.array(measured["places"]), np.array(measured["moved"])
            data += [
                {"seed": member.seed, "value": value, "x": x, "y": y, "dx": dx, "dy": dy}
                for value, rows in zip(measured["values"], moved.tolist(), strict=True)
                for (x, y), (dx, dy) in zip(measured["places"], rows, strict=True)
            ]
            if member is runs[0]:
                shown = np.linspace(0, len(moved) - 1, min(SHOWN, len(moved))).astype(int)
                longest = float(np.linalg.norm(moved, axis=2).max())
                scale = max(longest, 1e-9) / (2 * EDGE / (PLACES[found.setup.scale] - 1))
                panels = [_quiver(measured["values"][i], places, moved[i], scale) for i in shown]
        if not panels:
            panels = [Panel("no run", lambda axes, _: None, "No run is done.")]
        spans, inward, lengths = _numbers(runs)
        summary = (
            f"Over {many(len(runs), 'seed')} the mass moves {mean_text(lengths)} m in half a second; near the origin "
            f"directions span {mean_text(spans)} of 360 degrees over the values of the skill, and "
            f"{mean_text(inward, 2)} of the moves from the edges do not go further out."
        )
        caption = (
            "First seed: from rest at each place, half a second under the skill of that value, mean action. The square "
            "is the arena; the longest arrow is drawn as long as the lattice is wide."
        )
        plot = Plot(self.name, self.title, caption, tuple(panels), {}, 5, (1.5, 1.65), (2.6, 2.6))
        return ExperimentResult((plot,), summary, data=data)


def _quiver(value: float, places: Any, moved: Any, scale: float) -> Panel:
    def draw(axes: Axes, _: bool) -> None:
        angle = np.arctan2(moved[:, 1], moved[:, 0])
        axes.quiver(
            *places.T,
            *moved.T,
            angle,
            cmap="hsv",
            clim=(-np.pi, np.pi),
            angles="xy",
            scale_units="xy",
            scale=scale,
            width=0.011,
        )
        axes.set(xlim=(-0.31, 0.31), ylim=(-0.31, 0.31), xticks=[], yticks=[], aspect="equal")
        axes.grid(visible=False)
        for side in axes.spines.values():
            side.set_visible(True)

    return Panel(f"skill {value:.2f}", draw, f"Moves of the point mass under the skill {value:.2f}.")


def _numbers(runs: Any) -> tuple[list[float], list[float], list[float]]:
    """Per run: degrees spanned near the origin, share of moves at the edge that do not lead outward, mean length."""
    spans, inward, lengths = [], [], []
    for member in runs:
        places, moved = (np.array(member.measured["flow"][name]) for name in ("places", "moved"))
        near = np.linalg.norm(places, axis=1) < 0.06
        mean = moved[:, near].mean(axis=1)
        angles = np.sort(np.degrees(np.arctan2(mean[:, 1], mean[:, 0])))
        gaps = np.diff(np.append(angles, angles[0] + 360))
        spans.append(float(360 - gaps.max()))
        edge = np.abs(places).max(axis=1) > EDGE - 0.01
        axis = np.abs(places[edge]).argmax(axis=1)
        outward = np.sign(np.take_along_axis(places[edge], axis[:, None], 1))[None] * np.take_along_axis(
            moved[:, edge], axis[None, :, None].repeat(len(moved), 0), 2
        )
        inward.append(float((outward <= 0.005).mean()))
        lengths.append(float(np.linalg.norm(moved, axis=2).mean()))
    return spans, inward, lengths
