"""Figures of episodes: each domain's quantities by name, a line per skill or start."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs import quantities
from cic.envs.base import VectorEnv
from cic.envs.catalogue import Quantity, View
from cic.report.pictures.choosing import Order, Shown
from cic.report.pictures.directions import directions
from cic.report.figures.style import RC_PARAMS as FIGURE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
Colour = tuple[float, float, float]
_LEGEND = 16


@dataclass(frozen=True)
class Panel:
    """One pair of axes with a line per episode."""

    x: str
    y: str
    lines: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]
    plane: bool = False
    """Places rather than a course of time: both axes have one scale, beginnings and ends are marked."""
    title: str = ""
    limits: tuple[float, float, float, float] | None = None


def panels(env: VectorEnv, observations: Sequence[Array], physics: Sequence[Floats]) -> list[Panel]:
    """What the environment says is worth drawing; else the two directions in which the episodes differ most."""
    if not env.drawing:
        return [_unnamed(env, observations)]
    return [_panel(env, view, observations, physics) for view in env.drawing]


def _panel(env: VectorEnv, view: View, observations: Sequence[Array], physics: Sequence[Floats]) -> Panel:
    ys = [quantities.values(view.y, *both) for both in zip(observations, physics, strict=True)]
    if view.x is None:
        clock, unit = _clock(env)
        width = max(1, round(view.smooth / clock))
        label = f"{view.y.label}, mean over {view.smooth:g} s" if width > 1 else view.y.label
        return Panel(unit, label, [(clock * np.arange(len(y)), _smooth(y, width)) for y in ys], title=view.title)
    xs = [quantities.values(view.x, *both) for both in zip(observations, physics, strict=True)]
    lines = list(zip(xs, ys, strict=True))
    return Panel(view.x.label, view.y.label, lines, True, view.title, _limits(view.x, view.y))


def _smooth(values: Floats, width: int) -> Floats:
    """The mean of the `width` values around each; of fewer at the ends."""
    kernel = np.ones(min(width, len(values)))
    return np.asarray(np.convolve(values, kernel, "same") / np.convolve(np.ones_like(values), kernel, "same"))


def _limits(x: Quantity, y: Quantity) -> tuple[float, float, float, float] | None:
    if x.low is None or x.high is None or y.low is None or y.high is None:
        return None
    return x.low, x.high, y.low, y.high


def _unnamed(env: VectorEnv, observations: Sequence[Array]) -> Panel:
    found = directions(observations, env.entry_names())
    if len(found) < 2:
        clock, unit = _clock(env)
        lines = [(clock * np.arange(len(path)), found[0].values(path)) for path in observations]
        return Panel(unit, found[0].label, lines)
    lines = [(found[0].values(path), found[1].values(path)) for path in observations]
    share = sum(one.share for one in found)
    what = "skills differ" if len(observations) > 2 else "the episodes vary"
    title = f"the two directions in which {what} most ({share:.0%})"
    return Panel(found[0].label, found[1].label, lines, True, title)


def _clock(env: VectorEnv) -> tuple[float, str]:
    """How long a step is, and what time is counted in."""
    try:
        return env.step_seconds, "time (s)"
    except UserError:
        return 1.0, "step"


def colours(order: Order, count: int) -> list[Colour]:
    """One for each: along a scale, around a circle, or as far apart as they can be."""
    import matplotlib

    places = np.linspace(0, 0.95, count) if order == "ordered" else np.arange(count) / max(count, 1)
    name = {"ordered": "viridis", "round": "hsv"}.get(order, "turbo")
    if order == "apart" and count <= 10:
        name, places = "tab10", np.arange(count) / 10 + 0.05
    if name == "turbo":
        places = 0.05 + 0.9 * places
    return [tuple(float(part) for part in rgba[:3]) for rgba in matplotlib.colormaps[name](places)]  # type: ignore[misc]


def draw(panels: Sequence[Panel], shown: Shown, title: str, notes: Sequence[str], out: Path) -> Path:
    """All panels of some episodes, a colour for each episode in all of them."""
    with _settings():
        figure, axes = _layout(panels)
        tints = colours(shown.order, len(shown.names))
        for panel, axis in zip(panels, axes, strict=True):
            _draw_panel(panel, axis, tints)
        _say(figure, title, notes)
        _key(figure, shown, tints)
        figure.savefig(out, dpi=160)
    return out


def draw_starts(
    panels: Sequence[Panel], titles: Sequence[str], tints: Sequence[Colour], heading: str, out: Path
) -> Path:
    """One panel per skill, with its episodes from several starts, on the same axes."""
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    with _settings():
        side = (2.5, 2.6) if panels[0].plane else (2.7, 2.0)
        figure = _figure((columns * side[0] + 0.4, rows * side[1] + 0.8))
        axes = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
        for panel, axis, title, tint in zip(panels, axes, titles, tints, strict=False):
            count = len(panel.lines)
            _draw_panel(panel, axis, [tint] * count, alpha=0.75, ends="data" if panel.plane else None)
            axis.set_title(title)
        for index, axis in enumerate(axes):
            axis.set_visible(index < len(panels))
            axis.label_outer()
        count = len(panels[0].lines)
        note = f"One line per start: the same skill from the same {count} initial states in every panel."
        _say(figure, heading, [note + _marks(panels)])
        figure.savefig(out, dpi=160)
    return out


def _draw_panel(
    panel: Panel, axes: Axes, tints: Sequence[Colour], alpha: float = 0.85, ends: str | None = None
) -> None:
    for (x, y), tint in zip(panel.lines, tints, strict=True):
        axes.plot(x, y, color=tint, lw=1.1, alpha=alpha)
    if panel.plane:
        for (x, y), tint in zip(panel.lines, tints, strict=True):
            axes.plot(x[-1], y[-1], "o", color=tint, ms=4.5, mec="white", mew=0.6, zorder=3)
            axes.plot(x[0], y[0], "k+", ms=8, mew=1.3, zorder=4)
        if panel.limits is not None:
            x0, x1, y0, y1 = _around(panel)
            pad = 0.03 * (x1 - x0)
            axes.set(xlim=(x0 - pad, x1 + pad), ylim=(y0 - pad, y1 + pad))
        axes.set_aspect("equal", adjustable="box" if panel.limits is not None or ends else "datalim")
    else:
        axes.margins(x=0.01)
    axes.set(xlabel=panel.x, ylabel=panel.y)
    if panel.title:
        axes.set_title(panel.title)


def _around(panel: Panel) -> tuple[float, float, float, float]:
    """The limits, wider where a line leaves them."""
    assert panel.limits is not None
    x0, x1, y0, y1 = panel.limits
    xs, ys = (np.concatenate(parts) for parts in zip(*panel.lines, strict=True))
    return min(x0, xs.min()), max(x1, xs.max()), min(y0, ys.min()), max(y1, ys.max())


def _layout(panels: Sequence[Panel]) -> tuple[Figure, list[Axes]]:
    """Planes are squares from top to bottom; courses of time stand two above each other."""
    planes = sum(panel.plane for panel in panels)
    stacks = -(-(len(panels) - planes) // 2)
    widths = [3.7] * planes + [3.3] * stacks
    figure = _figure((max(sum(widths) + 0.3, 5.8), 4.9))
    grid = figure.add_gridspec(2, len(widths), width_ratios=widths)
    axes, plane, course = [], 0, 0
    for panel in panels:
        if panel.plane:
            axes.append(figure.add_subplot(grid[:, plane]))
            plane += 1
        else:
            alone = course == len(panels) - planes - 1 and course % 2 == 0
            place = grid[:, planes + course // 2] if alone else grid[course % 2, planes + course // 2]
            axes.append(figure.add_subplot(place))
            course += 1
    return figure, axes


def _say(figure: Figure, title: str, notes: Sequence[str]) -> None:
    heading = "\n".join(textwrap.wrap(title, int(figure.get_figwidth() * 11)))
    figure.suptitle(heading, fontsize=10, x=0.01, ha="left", fontweight="bold")
    if notes:
        width = int(figure.get_figwidth() * 16.5)
        lines = [line for note in notes for line in textwrap.wrap(note, width)]
        figure.supxlabel("\n".join(lines), fontsize=7.5, x=0.01, ha="left", color="#444444")


def _marks(panels: Sequence[Panel]) -> str:
    return " + where it begins, ● where it ends." if any(panel.plane for panel in panels) else ""


def marks(panels: Sequence[Panel]) -> str:
    """What the marks in planes mean, if there are any."""
    return _marks(panels).strip()


def _key(figure: Figure, shown: Shown, tints: Sequence[Colour]) -> None:
    """Which colour is which: a scale for values, names for the others as long as they can be told apart."""
    import matplotlib
    from matplotlib.lines import Line2D

    if len(shown.names) < 2:
        return
    if shown.order == "ordered":
        ticks = (np.arange(len(tints)) + 0.5) / len(tints)
        scale = matplotlib.cm.ScalarMappable(cmap=matplotlib.colors.ListedColormap(tints))
        step = -(-len(tints) // 11)
        bar = figure.colorbar(scale, ax=figure.axes, ticks=ticks[::step], label=shown.key, aspect=30, fraction=0.05)
        bar.ax.set_yticklabels(shown.names[::step])
        bar.ax.tick_params(length=0)
        bar.ax.grid(False)
    elif len(tints) <= _LEGEND:
        handles = [Line2D([], [], color=tint, lw=2, label=shown.title(i)) for i, tint in enumerate(tints)]
        figure.legend(handles=handles, loc="outside right center", frameon=False)


def _figure(size: tuple[float, float]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _settings() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise UserError("drawing needs matplotlib: pip install 'cic[report]'") from None
    return matplotlib.rc_context(FIGURE)
