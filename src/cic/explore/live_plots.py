"""Live plots: intrinsic reward, task rewards, confidence of the discriminator, named quantities, prompted reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.explore.explorer_page import CATEGORIES
from cic.explore.live_simulation import LiveSimulation

Doubles = npt.NDArray[np.float64]
SIDES = ("left", "right")


class LivePlots:
    """Charts of the last steps. With two agents, the lines of the right one are dashed."""

    def __init__(self, gui: Any, simulations: Sequence[LiveSimulation]) -> None:
        self._gui, self._simulations = gui, list(simulations)
        self._charts: list[Any] = []

    def add_metrics(self) -> None:
        """Add charts of the intrinsic reward, the task rewards and the confidence of the discriminator."""
        named: dict[str, list[str]] = {"intrinsic reward": ["intrinsic"]}
        tasks = dict.fromkeys(task for simulation in self._simulations for task in simulation.tasks)
        named["task rewards"] = [f"task/{task}" for task in tasks]
        named["confidence of the discriminator"] = ["confidence", "chance"]
        self._add(named)

    def add_quantities(self) -> None:
        """Add a chart of the prompted reward and one of each named quantity."""
        labels = {
            quantity.label: [f"quantity/{quantity.name}"]
            for simulation in self._simulations
            for quantity in simulation.quantities
        }
        bounds = {
            quantity.label: (quantity.low, quantity.high)
            for simulation in self._simulations
            for quantity in simulation.quantities
            if quantity.low is not None and quantity.high is not None
        }
        self._add({"prompted reward": ["prompt"]} | labels, bounds)

    def _add(self, named: dict[str, list[str]], bounds: Mapping[str, tuple[float, float]] = {}) -> None:
        """Add charts by title. Without `bounds`, the vertical axis fits the data."""
        for title, names in named.items():
            lines = [(side, name) for side in range(len(self._simulations)) for name in names]
            series: list[dict[str, Any]] = [{"label": "step"}]
            for side, name in lines:
                label = name.removeprefix("task/").removeprefix("quantity/") + (
                    f", {SIDES[side]}" if len(self._simulations) > 1 else ""
                )
                colour = CATEGORIES[(names.index(name) if len(names) > 1 else side) % len(CATEGORIES)]
                dash = {"dash": (6, 4)} if side else {}
                series.append({"label": label, "stroke": colour, "width": 2, **dash})
            scales: dict[str, Any] = {"x": {"time": False}}
            if title in bounds:
                scales["y"] = {"auto": False, "range": bounds[title]}
            empty = tuple(np.zeros(1) for _ in series)
            legend = {"show": len(lines) > 1, "live": False}
            chart = self._gui.add_uplot(
                empty, tuple(series), title=title, scales=scales, legend=legend, height=150, padding=(4, 12, 0, 0)
            )
            self._charts.append((chart, lines))

    def update(self) -> None:
        for chart, lines in self._charts:
            chart.data = aligned([self._line(side, name) for side, name in lines])

    def _line(self, side: int, name: str) -> tuple[Doubles, Doubles]:
        simulation = self._simulations[side]
        values = np.array(simulation.traces.get(name, ()), np.float64)
        steps = np.array(simulation.times, np.float64)
        good = np.isfinite(values)
        return (steps[good], values[good]) if len(values) == len(steps) else (np.zeros(0), np.zeros(0))


def aligned(lines: list[tuple[Doubles, Doubles]]) -> tuple[Doubles, ...]:
    """Interpolate all lines at the union of their steps; outside its own steps, a line keeps its end value."""
    steps = np.unique(np.concatenate([steps for steps, _ in lines]))
    if not len(steps):
        return tuple(np.zeros(1) for _ in range(len(lines) + 1))
    values = [np.interp(steps, own, given) if len(own) else np.zeros(len(steps)) for own, given in lines]
    return (steps, *values)
