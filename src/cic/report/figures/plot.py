"""Figures as lists of panels: one grid for a publication (PNG, PDF), one SVG image per panel for the page.

Separate images stack on a narrow screen, where a grid would become too small to read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cic.report.figures.style import RC_PARAMS, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    draw: Callable[[Axes, bool], None]
    """Draws into the axes. The flag is true for the first panel of a row, which has the shared axis labels."""
    alt: str
    """Alternative text for screen readers."""


@dataclass(frozen=True)
class Plot:
    """The description of a figure."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    legend: Mapping[str, Style]
    columns: int = 4
    cell: tuple[float, float] = (1.75, 1.55)
    """Width and height of one panel in the grid, in inches."""
    alone: tuple[float, float] = (3.0, 2.15)
    """Width and height of one panel on the page, in inches."""
    margin: float = 0.0
    """Space for row labels to the left of the grid, in inches."""


def save(plot: Plot, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write the grid in publication quality."""
    paths = [folder / f"{plot.name}.{suffix}" for suffix in formats]
    if not paths:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    with _settings():
        figure = _grid(plot)
        for path in paths:
            metadata = {"CreationDate": None} if path.suffix == ".pdf" else None  # reproducible files
            figure.savefig(path, metadata=metadata)
            figure.set_layout_engine("none")  # reuse the layout: computing it takes longer than drawing
    return paths


def svgs(plot: Plot) -> list[str]:
    """Return each panel as an SVG image."""
    images = []
    with _settings():
        for panel in plot.panels:
            figure, axes = _figure(1, 1, plot.alone)
            panel.draw(axes[0], True)
            images.append(_svg(figure))
    return images


def key(style: Style) -> str:
    """Return the image of a legend entry: a line with its marker."""
    with _settings():
        figure, (axes,) = _figure(1, 1, (0.36, 0.15))
        axes.set_axis_off()
        axes.plot([0, 2], [0, 0], **style.line)
        axes.plot([1], [0], **style.point, linestyle="none")
        axes.set(xlim=(0, 2), ylim=(-1, 1))
        return _svg(figure)


def _grid(plot: Plot) -> Figure:
    count = len(plot.panels)
    columns = min(plot.columns, count)
    lines = -(-count // columns)
    width = columns * plot.cell[0] + plot.margin
    height = lines * plot.cell[1] + (0.16 * _legend_shape(plot, width)[0] + 0.1 if plot.legend else 0.0)
    figure, axes = _figure(lines, columns, (width, height))
    for index, (panel, axis) in enumerate(zip(plot.panels, axes, strict=False)):
        panel.draw(axis, index % columns == 0)
        axis.set_title(panel.title)
    for axis in axes[count:]:
        axis.set_visible(False)
    if plot.legend:
        _legend(figure, plot, width)
    return figure


def _legend(figure: Figure, plot: Plot, width: float) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **style.line, **style.point, label=label) for label, style in plot.legend.items()]
    _, columns = _legend_shape(plot, width)
    by_row = [handles[i] for column in range(columns) for i in range(column, len(handles), columns)]
    figure.legend(handles=by_row, loc="outside lower center", ncols=columns, columnspacing=1.2)  # fills columns first


def _legend_shape(plot: Plot, width: float) -> tuple[int, int]:
    """Return the number of lines and columns of a legend that fits the width."""
    longest = max(len(label) for label in plot.legend)
    fit = max(1, int(width / (0.42 + 0.068 * longest)))
    lines = -(-len(plot.legend) // fit)
    return lines, -(-len(plot.legend) // lines)


def _figure(lines: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(lines, columns, squeeze=False).flat)


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _settings() -> Any:
    import matplotlib

    return matplotlib.rc_context(RC_PARAMS)
