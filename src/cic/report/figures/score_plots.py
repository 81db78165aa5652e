"""Figures of scores: aggregate statistics, performance profile, probability of improvement, skill selection."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cic.report.figures.curve_plots import draw_band, task_title
from cic.report.figures.plot import Panel, Plot
from cic.report.figures.style import Style
from cic.report.groups import RunGroup, Study
from cic.report.options import ReportOptions
from cic.report.score_tables import STATISTIC_TITLES
from cic.report.scores import MethodScores, Scores, task_place
from cic.report.statistics import Estimate, profile
from cic.runs.contents import Selection

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def aggregate(scores: Scores, options: ReportOptions) -> Plot:
    """Return point estimates and intervals of the four statistics, one row per method."""
    labels = [row.label for row in scores.rows]
    names = [_wrapped(label) for label in labels]
    panels = []
    for name, heading in STATISTIC_TITLES.items():
        estimates = [scores.aggregates[label][name] for label in labels]
        best = (min if name == "optimality_gap" else max)(zip(estimates, labels, strict=True))[1]
        alt = f"{heading[:-2]} of each method with its interval; best: {best}. The table contains the numbers."
        panels.append(Panel(heading, _points(scores.rows, estimates), alt))
    height = _height(names) + 0.45
    caption = f"Aggregate statistics with {100 * options.confidence:g}% stratified bootstrap intervals."
    return Plot(
        "aggregate",
        "Aggregate statistics",
        caption,
        tuple(panels),
        {},
        cell=(1.5, height),
        alone=(max(3.0, 1.8 + _width(names)), height + 0.25),
        margin=_width(names),
    )


def _wrapped(label: str) -> str:
    """Wrap a long label."""
    return "\n".join(textwrap.wrap(label, 26, break_long_words=True))


def _height(names: Sequence[str]) -> float:
    return sum(0.08 + 0.12 * len(name.split("\n")) for name in names)


def _width(names: Sequence[str]) -> float:
    return 0.07 * max(len(line) for name in names for line in name.split("\n"))


def _points(
    rows: Sequence[MethodScores], estimates: Sequence[Estimate], half: float | None = None
) -> Callable[[Axes, bool], None]:
    """Draw one row per method: point and interval, the first on top. `half` is the value of no difference."""

    def draw(axes: Axes, labelled: bool) -> None:
        for place, (row, estimate) in enumerate(zip(rows, estimates, strict=True)):
            if np.isfinite(estimate.low):
                span = [(estimate.low, estimate.high - estimate.low)]
                axes.broken_barh(span, (place - 0.31, 0.62), facecolors=row.style.colour, alpha=0.28)
            axes.plot([estimate.value], [place], **row.style.point, linestyle="none", clip_on=False)
        axes.set_yticks(range(len(rows)), [_wrapped(row.label) for row in rows] if labelled else [""] * len(rows))
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        axes.locator_params(axis="x", nbins=4)
        axes.use_sticky_edges = False  # keep a margin around the bars
        axes.margins(x=0.06)
        if half is not None:
            axes.axvline(half, color="#444444", linewidth=0.9, linestyle="--")
            axes.set_xlim(-0.02, 1.02)

    return draw


def improvement(reference: MethodScores, found: Sequence[tuple[MethodScores, Estimate]]) -> Plot:
    rows, estimates = zip(*found, strict=True)
    worst = min(found, key=lambda item: item[1].value)
    alt = f"Probability of improvement of {reference.label} over each method; closest: {worst[0].label}."
    draw = _points(rows, estimates, half=0.5)

    def labelled(axes: Axes, labels: bool) -> None:
        draw(axes, labels)
        axes.set_xlabel(f"P({reference.label} > Y)")

    size = (3.3, _height([_wrapped(row.label) for row in rows]) + 0.7)
    caption = (
        "To the right of the dashed line, the reference is more likely to score higher than the method of that row."
    )
    panel = Panel(f"{reference.label} against each other method", labelled, alt)
    return Plot("improvement", "Probability of improvement", caption, (panel,), {}, 1, size, size, 0.5)


def performance_profile(scores: Scores, options: ReportOptions) -> Plot:
    rows = scores.own
    top = max(1.0, max(float(np.nanmax(row.matrix.values)) for row in rows))
    thresholds = np.linspace(0.0, 1.02 * top, 103)
    bands = [profile(row.matrix, thresholds, options) for row in rows]

    def draw(axes: Axes, _: bool) -> None:
        for index, (row, band) in enumerate(zip(rows, bands, strict=True)):
            draw_band(axes, thresholds, band, row.style, index)
        axes.set(xlabel="Normalised score τ", ylabel="Runs with score > τ", xlim=(0, thresholds[-1]), ylim=(0, 1.02))

    panel = Panel("Performance profile", draw, "Fraction of runs above each normalised score, one line per method.")
    caption = "Fraction of runs with a score above τ; higher is better. Shading: pointwise intervals."
    legend = {row.label: row.style for row in rows}
    return Plot("profile", "Performance profile", caption, (panel,), legend, 1, (5.2, 2.4), (4.0, 2.7))


def selection(study: Study, found: Sequence[tuple[RunGroup, str, Selection]]) -> Plot | None:
    """Show the return of each tried skill, one panel per task; a ring marks the selected skill."""
    panels = []
    for task in sorted({task for _, task, _ in found}, key=task_place):
        here = [(group, trials) for group, name, trials in found if name == task]
        panels.append(Panel(task_title(task), _trials(study, here), f"Return of each tried skill on {task}."))
    if not panels:
        return None
    shown = {group.label for group, _, _ in found}
    legend = {label: style for label, style in study.styles.items() if label in shown}
    caption = (
        "Return of each skill tried at the start of finetuning, one line per run; a ring marks the selected skill."
    )
    return Plot("selection", "Skill selection", caption, tuple(panels), legend)


def _trials(study: Study, found: Sequence[tuple[RunGroup, Selection]]) -> Callable[[Axes, bool], None]:
    constant = all(len(set(trial.skill)) == 1 for _, trials in found for trial in trials.trials)

    def draw(axes: Axes, _: bool) -> None:
        for group, trials in found:
            style = study.styles[group.label]
            x = [t.skill[0] if constant else index + 1 for index, t in enumerate(trials.trials)]
            y = [trial.score for trial in trials.trials]
            order = np.argsort(x, kind="stable")
            axes.plot(np.array(x)[order], np.array(y)[order], **style.line, linewidth=0.9, alpha=0.7)
            if trials.chosen is not None:
                ring = Style(style.colour, "o", hollow=True).point
                axes.plot([x[trials.chosen]], [y[trials.chosen]], **ring, markersize=5.5, linestyle="none")
        axes.margins(x=0.06, y=0.12)
        axes.set(xlabel="Skill value" if constant else "Trial", ylabel="Return")

    return draw
