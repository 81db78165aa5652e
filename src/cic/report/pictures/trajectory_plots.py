"""Plots of episodes: the quantities that a domain names, one line per skill or initial state."""

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
from cic.report.figures.style import RC_PARAMS
from cic.report.pictures.skill_choice import ColourScale, ShownSkills

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
Colour = tuple[float, float, float]
_MAX_LEGEND = 16
_MAX_NAMES = 3  # entries in the label of a direction
_MARKS = "+ initial state, ● final state."


@dataclass(frozen=True)
class TrajectoryPanel:
    """One pair of axes with a line per episode."""

    x: str
    y: str
    lines: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]
    plane: bool = False
    """Whether the axes are positions: both have the same scale, and initial and final states are marked."""
    title: str = ""
    limits: tuple[float, float, float, float] | None = None


def panels(env: VectorEnv, observations: Sequence[Array], physics: Sequence[Floats]) -> list[TrajectoryPanel]:
    """Return the views that the environment defines; otherwise the two directions in which episodes differ most."""
    if not env.drawing:
        return [_direction_panel(env, observations)]
    return [_panel(env, view, observations, physics) for view in env.drawing]


def seconds_per_step(env: VectorEnv) -> float | None:
    """Return the simulated time of a step, if the environment defines it."""
    try:
        return env.step_seconds
    except UserError:
        return None


def _panel(env: VectorEnv, view: View, observations: Sequence[Array], physics: Sequence[Floats]) -> TrajectoryPanel:
    ys = [quantities.values(view.y, *episode) for episode in zip(observations, physics, strict=True)]
    if view.x is None:
        width = max(1, round(view.smooth / (seconds_per_step(env) or 1.0)))
        label = f"{view.y.label}, mean over {view.smooth:g} s" if width > 1 else view.y.label
        return _time_panel(env, label, [_smooth(y, width) for y in ys], view.title)
    xs = [quantities.values(view.x, *episode) for episode in zip(observations, physics, strict=True)]
    lines = list(zip(xs, ys, strict=True))
    return TrajectoryPanel(view.x.label, view.y.label, lines, True, view.title, _limits(view.x, view.y))


def _time_panel(env: VectorEnv, label: str, values: Sequence[Floats], title: str = "") -> TrajectoryPanel:
    seconds = seconds_per_step(env)
    lines = [((seconds or 1.0) * np.arange(len(value)), value) for value in values]
    return TrajectoryPanel("step" if seconds is None else "time (s)", label, lines, title=title)


def _smooth(values: Floats, width: int) -> Floats:
    """Return the moving average over `width` values, over fewer at both ends."""
    kernel = np.ones(min(width, len(values)))
    return np.asarray(np.convolve(values, kernel, "same") / np.convolve(np.ones_like(values), kernel, "same"))


def _limits(x: Quantity, y: Quantity) -> tuple[float, float, float, float] | None:
    if x.low is None or x.high is None or y.low is None or y.high is None:
        return None
    return x.low, x.high, y.low, y.high


# ---- directions in which skills differ most --------------------------------------------------------------------------


@dataclass(frozen=True)
class Direction:
    """A weighted sum of the standardised entries of the observation."""

    weights: Floats
    """(obs,), of length 1."""
    mean: Floats
    std: Floats
    share: float
    """Explained share of the variance between skills."""
    names: Sequence[str]

    def values(self, obs: Array) -> Floats:
        return np.asarray((obs - self.mean) / self.std @ self.weights)

    @property
    def label(self) -> str:
        """The entries with the largest weights."""
        relevant = np.abs(self.weights) > 0.05
        largest = [i for i in np.argsort(-np.abs(self.weights))[:_MAX_NAMES] if relevant[i]]
        parts = [f"{self.weights[i]:+.2f} {self.names[i]}".replace("-", "−") for i in largest]
        more = int(relevant.sum()) - len(parts)
        return " ".join(parts) + (f" and {more} more" if more > 0 else "")


def directions(paths: Sequence[Array], names: Sequence[str], count: int = 2) -> list[Direction]:
    """Return the principal components of the mean observations of the skills; of a single path, those of its steps."""
    every = np.concatenate(paths).astype(np.float64)
    mean, std = every.mean(axis=0), every.std(axis=0)
    std = np.where(std > 1e-6, std, 1.0)
    means = np.stack([path.mean(axis=0, dtype=np.float64) for path in paths]) if len(paths) > 2 else every
    _, lengths, axes = np.linalg.svd((means - means.mean(axis=0)) / std, full_matrices=False)
    total = float((lengths**2).sum()) or 1.0
    return [
        # the largest weight is positive
        Direction(axis * np.sign(axis[np.abs(axis).argmax()]), mean, std, float(length**2 / total), names)
        for axis, length in zip(axes[:count], lengths[:count], strict=True)
    ]


def _direction_panel(env: VectorEnv, observations: Sequence[Array]) -> TrajectoryPanel:
    found = directions(observations, env.entry_names())
    if len(found) < 2:
        return _time_panel(env, found[0].label, [found[0].values(path) for path in observations])
    lines = [(found[0].values(path), found[1].values(path)) for path in observations]
    what = "skills differ" if len(observations) > 2 else "the episodes vary"
    title = f"the two directions in which {what} most ({sum(one.share for one in found):.0%})"
    return TrajectoryPanel(found[0].label, found[1].label, lines, True, title)


# ---- figures ---------------------------------------------------------------------------------------------------------


def colours(scale: ColourScale, count: int) -> list[Colour]:
    import matplotlib

    places = np.linspace(0, 0.95, count) if scale == "sequential" else np.arange(count) / max(count, 1)
    name = {"sequential": "viridis", "cyclic": "hsv"}.get(scale, "turbo")
    if scale == "categorical" and count <= 10:
        name, places = "tab10", np.arange(count) / 10 + 0.05
    if name == "turbo":
        places = 0.05 + 0.9 * places
    return [tuple(float(part) for part in rgba[:3]) for rgba in matplotlib.colormaps[name](places)]  # type: ignore[misc]


def plot_skills(
    panels: Sequence[TrajectoryPanel], shown: ShownSkills, title: str, caption: Sequence[str], out: Path
) -> Path:
    """Draw all panels, with the same colour for a skill in all of them."""
    with _settings():
        figure, axes = _layout(panels)
        tints = colours(shown.colours, len(shown.names))
        for panel, axis in zip(panels, axes, strict=True):
            _draw_panel(panel, axis, tints)
        marks = [_MARKS] if any(panel.plane for panel in panels) else []
        _add_text(figure, title, [" ".join([caption[0], *marks]), *caption[1:]])
        _add_key(figure, shown, tints)
        figure.savefig(out, dpi=160)
    return out


def _draw_panel(panel: TrajectoryPanel, axes: Axes, tints: Sequence[Colour]) -> None:
    for (x, y), tint in zip(panel.lines, tints, strict=True):
        axes.plot(x, y, color=tint, lw=1.1, alpha=0.85)
        if panel.plane:
            axes.plot(x[-1], y[-1], "o", color=tint, ms=4.5, mec="white", mew=0.6, zorder=3)
            axes.plot(x[0], y[0], "k+", ms=8, mew=1.3, zorder=4)
    if panel.plane:
        if panel.limits is not None:  # wider if a line exceeds them
            x0, x1, y0, y1 = panel.limits
            xs, ys = (np.concatenate(parts) for parts in zip(*panel.lines, strict=True))
            x0, x1, y0, y1 = min(x0, xs.min()), max(x1, xs.max()), min(y0, ys.min()), max(y1, ys.max())
            pad = 0.03 * (x1 - x0)
            axes.set(xlim=(x0 - pad, x1 + pad), ylim=(y0 - pad, y1 + pad))
        axes.set_aspect("equal", adjustable="box" if panel.limits is not None else "datalim")
    else:
        axes.margins(x=0.01)
    axes.set(xlabel=panel.x, ylabel=panel.y, title=panel.title)


def _layout(panels: Sequence[TrajectoryPanel]) -> tuple[Figure, list[Axes]]:
    """Arrange planes over the full height, then pairs of time series above each other."""
    series = [index for index, panel in enumerate(panels) if not panel.plane]
    pairs = [series[start : start + 2] for start in range(0, len(series), 2)]
    columns = [[index, index] for index, panel in enumerate(panels) if panel.plane]
    widths = [3.7] * len(columns) + [3.3] * len(pairs)
    columns += [[pair[0], pair[-1]] for pair in pairs]
    figure = _figure((max(sum(widths) + 0.3, 5.8), 4.9))
    axes: dict[int, Axes] = figure.subplot_mosaic(
        [list(row) for row in zip(*columns, strict=True)], width_ratios=widths
    )
    return figure, [axes[index] for index in range(len(panels))]


def _add_text(figure: Figure, title: str, caption: Sequence[str]) -> None:
    width = figure.get_figwidth()
    heading = "\n".join(textwrap.wrap(title, int(11 * width)))
    figure.suptitle(heading, fontsize=10, x=0.01, ha="left", fontweight="bold")
    lines = [line for part in caption for line in textwrap.wrap(part, int(16.5 * width))]
    figure.supxlabel("\n".join(lines), fontsize=7.5, x=0.01, ha="left", color="#444444")


def _add_key(figure: Figure, shown: ShownSkills, tints: Sequence[Colour]) -> None:
    """Add a colour bar for values, or a legend if there are few names."""
    import matplotlib
    from matplotlib.lines import Line2D

    if len(shown.names) < 2:
        return
    if shown.colours == "sequential":
        ticks = (np.arange(len(tints)) + 0.5) / len(tints)
        scale = matplotlib.cm.ScalarMappable(cmap=matplotlib.colors.ListedColormap(tints))
        step = -(-len(tints) // 11)
        bar = figure.colorbar(scale, ax=figure.axes, ticks=ticks[::step], label=shown.key, aspect=30, fraction=0.05)
        bar.ax.set_yticklabels(shown.names[::step])
        bar.ax.tick_params(length=0)
        bar.ax.grid(False)
    elif len(tints) <= _MAX_LEGEND:
        handles = [Line2D([], [], color=tint, lw=2, label=shown.title(i)) for i, tint in enumerate(tints)]
        figure.legend(handles=handles, loc="outside right center", frameon=False)


def _figure(size: tuple[float, float]) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained", facecolor="white")


def _settings() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise UserError("plots need matplotlib: pip install 'cic[report]'") from None
    return matplotlib.rc_context(RC_PARAMS)
