"""Learning curves of finetuning and pre-training, one line per group of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cic.core.paper_scores import experts
from cic.report.figures.plot import Panel, Plot
from cic.report.figures.style import Style
from cic.report.groups import RunGroup, Study
from cic.report.learning_curves import Curve, Metrics, curve, efficiency, metric_series, normalised_series
from cic.report.options import ReportOptions
from cic.report.scores import Scores, task_place
from cic.report.statistics import Band
from cic.report.tables import count, words
from cic.runs.contents import FloatArray, Series
from cic.runs.records import split_task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Line = tuple[str, Style, Curve]


def sample_efficiency(study: Study, loaded: Metrics, scores: Scores, options: ReportOptions) -> Plot | None:
    """Return normalised score against finetuning steps, over all tasks and by domain."""
    overall = [
        (group, found)
        for group in study.main
        if (found := efficiency(group, loaded, scores.tasks, options)) is not None
    ]
    if not overall:
        return None

    def draw(axes: Axes, _: bool) -> None:
        for index, (group, (steps, band)) in enumerate(overall):
            draw_band(axes, steps, band, study.styles[group.label], index)
        step_axis(axes, "Finetuning steps", "Normalised score")

    panels = [Panel("All tasks (IQM)", draw, "IQM of the normalised score against finetuning steps.")]
    for domain in dict.fromkeys(split_task(task)[0] for task in scores.tasks):
        tasks = [task for task in scores.tasks if split_task(task)[0] == domain]
        lines = _lines(study, [(group, normalised_series(group, loaded, tasks)) for group in study.main])
        panels.append(curve_panel(f"{words(domain)} (mean)", lines, "Finetuning steps", "Normalised score"))
    caption = "Normalised score while finetuning: IQM with bootstrap intervals, and mean ± standard error by domain."
    legend = {group.label: study.styles[group.label] for group, _ in overall}
    return Plot("sample_efficiency", "Sample efficiency", caption, tuple(panels), legend, columns=2, cell=(3.3, 2.2))


def finetuning(study: Study, loaded: Metrics) -> Plot | None:
    """Return evaluation return against steps, one panel per task."""
    tasks = sorted({run.task for group in study.finetune for run in group.runs}, key=task_place)
    panels = [(task_title(task), "eval/return", _within(study.finetune, task=task)) for task in tasks]
    caption = "Mean evaluation return ± standard error over runs. Thin: only some runs have reached the step."
    return _plot(study, loaded, Plot("finetuning", "Finetuning by task", caption, (), {}), panels, "Return")


def zero_shot(study: Study, loaded: Metrics) -> Plot | None:
    """Return the task returns of random skills during pre-training, which uses no task reward."""
    keys: dict[tuple[str, str], str] = {}  # (domain, task) → key
    for run in [run for group in study.pretrain for run in group.runs]:
        for key in loaded[run.path]:
            if key.startswith("zero_shot/"):
                keys[run.domain, key.removeprefix("zero_shot/").removeprefix(f"{run.domain}-")] = key
    panels = [
        (task_title("-".join(pair)), keys[pair], _within(study.pretrain, domain=pair[0]))
        for pair in sorted(keys, key=lambda pair: task_place("-".join(pair)))
    ]
    caption = (
        "Pre-training: return of random skills on tasks whose reward is not used, mean ± standard error over runs."
    )
    plot = Plot("zero_shot", "Zero-shot return in pre-training", caption, (), {})
    return _plot(study, loaded, plot, panels, "Return")


DIAGNOSTICS = {
    "reward/intrinsic": "Intrinsic reward",
    "coverage/fraction": "Fraction of cells visited",
    "skill/accuracy": "Skill accuracy",
    "embedding/effective_rank": "Effective rank",
    "critic/loss": "Critic loss",
}


def diagnostics(study: Study, loaded: Metrics) -> Plot | None:
    """Return the diagnostics of pre-training, one panel per quantity and domain."""
    domains = sorted({run.domain for group in study.pretrain for run in group.runs}, key=_domain_place)
    panels = [
        (f"{words(domain)}: {heading.lower()}", key, _within(study.pretrain, domain=domain))
        for key, heading in DIAGNOSTICS.items()
        for domain in domains
    ]
    caption = "Pre-training: mean ± standard error over runs. Dotted: accuracy at chance level."
    columns = len(domains) if len(domains) in (2, 3) else 3
    plot = Plot("diagnostics", "Pre-training diagnostics", caption, (), {}, columns, (2.33, 1.6))
    return _plot(study, loaded, plot, panels)


def _within(groups: Iterable[RunGroup], **where: str) -> list[RunGroup]:
    """Return the groups with only those of their runs that are on a task or in a domain."""
    ((name, value),) = where.items()
    return [replace(g, runs=tuple(run for run in g.runs if getattr(run, name) == value)) for g in groups]


def _domain_place(domain: str) -> tuple[int, str]:
    """Sort key: domains in the paper's order, then other domains by name."""
    known = list(dict.fromkeys(split_task(task)[0] for task in experts()))
    return (known.index(domain) if domain in known else len(known), domain)


def _plot(
    study: Study, loaded: Metrics, plot: Plot, wanted: Iterable[tuple[str, str, Sequence[RunGroup]]], y: str = ""
) -> Plot | None:
    """Add a panel for each heading, metric and groups that have the metric; None without any panel."""
    panels, shown = [], set()
    for heading, key, groups in wanted:
        if lines := _lines(study, [(group, metric_series(group, loaded, key)) for group in groups]):
            chance = [(g, metric_series(g, loaded, "skill/chance")) for g in groups if key == "skill/accuracy"]
            panels.append(curve_panel(heading, lines, "Steps", y, _lines(study, chance)))
            shown |= {label for label, _, _ in lines}
    legend = {label: style for label, style in study.styles.items() if label in shown}
    return replace(plot, panels=tuple(panels), legend=legend) if panels else None


def _lines(study: Study, groups: Iterable[tuple[RunGroup, list[Series]]]) -> list[Line]:
    found = [(group.label, study.styles[group.label], curve(series)) for group, series in groups]
    return [(label, style, line) for label, style, line in found if line is not None]


def curve_panel(heading: str, lines: Sequence[Line], x: str, y: str, base: Sequence[Line] = ()) -> Panel:
    """Return mean ± standard error of each line; `base` are dotted reference lines."""

    def draw(axes: Axes, first: bool) -> None:
        for index, (_label, style, line) in enumerate(lines):
            solid = slice(0, line.complete)
            _line(axes, line.steps[solid], line.mean[solid], style, index)
            if line.complete < len(line.steps):
                rest = slice(max(line.complete - 1, 0), None)
                axes.plot(line.steps[rest], line.mean[rest], color=style.colour, linewidth=0.8)
            axes.fill_between(line.steps, line.low, line.high, color=style.colour, alpha=0.15, linewidth=0)
        for _label, style, line in base:
            axes.plot(line.steps, line.mean, color=style.colour, linewidth=0.9, linestyle=":")
        step_axis(axes, x, y if first else "")

    last = ", ".join(f"{label} {line.mean[-1]:.3g}" for label, _, line in lines)
    return Panel(heading, draw, f"{heading} against {x.lower()}. Last values: {last}.")


def step_axis(axes: Axes, x: str, y: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set(xlabel=x, ylabel=y)
    axes.set_xlim(left=0)


def task_title(task: str) -> str:
    domain, name = split_task(task)
    return f"{words(domain)}: {words(name).lower()}" if name else words(domain)


def draw_band(axes: Axes, x: FloatArray, band: Band, style: Style, index: int) -> None:
    _line(axes, x, band.value, style, index)
    if np.isfinite(band.low).all():
        axes.fill_between(x, band.low, band.high, color=style.colour, alpha=0.13, linewidth=0)


def _line(axes: Axes, x: FloatArray, y: FloatArray, style: Style, index: int) -> None:
    """Draw a line with staggered markers, so that markers of similar lines do not overlap."""
    every = max(1, len(x) // 5)
    axes.plot(x, y, **style.line, **style.point, markersize=3.2, markevery=(index % every, every))
