"""Panels that several experiments share, in the report's style."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cic.core.paper_scores import TITLES
from cic.experiments.experiment_runs import ExperimentRuns
from cic.report.figures import Panel
from cic.report.figures.style import COLOURS, Style
from cic.report.statistics import standard_error
from cic.report.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ORDER = ("cic", "disagreement", "apt", "diayn", "smm", "ddpg", "icm", "proto", "rnd", "fixed", "aps")
_MARKERS = "soDv^<>PXdp"
PAPER = "The paper"
PAPER_STYLE = Style("#444444", "D", ":", hollow=True)


def styles(variants: Iterable[str]) -> dict[str, Style]:
    """Return a colour and marker for each: a method's own, else distinct colours in order."""
    names = {title: name for name, title in TITLES.items()}
    found: dict[str, Style] = {}
    for index, variant in enumerate(variants):
        method = names.get(variant)
        colour = COLOURS[method] if method in COLOURS else COLOURS[_ORDER[index % len(_ORDER)]]
        found[variant] = Style(colour, _MARKERS[index % len(_MARKERS)])
    return found


def legend(found: ExperimentRuns, variants: Iterable[str] | None = None) -> dict[str, Style]:
    """Return label → style; the label of a variant with missing runs contains their number."""
    chosen = styles(found.variants)
    return {found.label(variant): chosen[variant] for variant in (variants or found.variants)}


def dots_panel(
    found: ExperimentRuns,
    title: str,
    values: Mapping[str, Sequence[float]],
    x: str,
    paper: Mapping[str, float] | None = None,
) -> Panel:
    """Draw a row per variant: a faint dot per run, mean ± standard error, and a diamond where the paper has a number.

    The row of a variant without runs contains "no runs".
    """
    rows, looks = list(values), styles(values)

    def draw(axes: Axes, labelled: bool) -> None:
        for place, variant in enumerate(rows):
            runs, style = [v for v in values[variant] if math.isfinite(v)], looks[variant]
            if runs:
                axes.plot(runs, [place] * len(runs), ".", color=style.colour, alpha=0.45, markersize=5)
                axes.errorbar(np.mean(runs), place, xerr=_spread(runs), color=style.colour, **style.point, capsize=2.5)
            else:
                axes.text(0.02, place, "no runs", color="#888888", va="center", transform=axes.get_yaxis_transform())
            if paper and math.isfinite(paper.get(variant, math.nan)):
                axes.plot([paper[variant]], [place], **PAPER_STYLE.point, linestyle="none", markersize=5)
        names = [found.label(variant) for variant in rows]
        axes.set_yticks(range(len(rows)), names if labelled else [""] * len(rows))
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.locator_params(axis="x", nbins=4)
        axes.margins(x=0.08)
        axes.set_xlabel(x)

    numbers = "; ".join(f"{variant}: {mean_text(values[variant])}" for variant in rows)
    return Panel(title, draw, f"{title}, {x.lower()}. {numbers}.")


def _spread(runs: Sequence[float]) -> float:
    error = standard_error(runs)
    return error if math.isfinite(error) else 0.0


def mean_text(values: Sequence[float], digits: int | None = None) -> str:
    """ "312 ± 20", "0.71" for a single run, "no runs"."""
    runs = [value for value in values if math.isfinite(value)]
    if not runs:
        return "no runs"
    mean, error = float(np.mean(runs)), standard_error(runs)
    places = digits if digits is not None else 0 if abs(mean) >= 20 else 1 if abs(mean) >= 2 else 2
    return number(mean, places) + (f" ± {number(error, places)}" if math.isfinite(error) else "")


def listed(words: Sequence[str]) -> str:
    """ "a, b and c"."""
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part) if words else ""


def picture_panel(title: str, picture: Any, alt: str) -> Panel:
    """An image (height, width, 3) without axes, or the reason why there is none."""

    def draw(axes: Axes, _: bool) -> None:
        axes.set_axis_off()
        if isinstance(picture, str):
            axes.text(0.5, 0.5, picture, ha="center", va="center", wrap=True, color="#888888")
        else:
            axes.imshow(picture, interpolation="bilinear")

    return Panel(title, draw, alt)
