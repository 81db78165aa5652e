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
from cic.report.learning_curves import Curve, Metrics, curve, efficiency, normalised_series, task_series
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
        for group in study.finetune
        if (found := efficiency(group, loaded, scores.tasks, options.bootstrap)) is not None
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
        lines = _lines(study, [(group, normalised_series(group, loaded, tasks)) for group in study.finetune])
        panels.append(curve_panel(f"{words(domain)} (mean)", lines, "Finetuning steps", "Normalised score"))
    caption = "Normalised score while finetuning: IQM with bootstrap intervals, and mean ± standard error by domain."
    legend = {group.label: study.styles[group.label] for group, _ in overall}
    return Plot("sample_efficiency", "Sample efficiency", caption, tuple(panels), legend, columns=2, cell=(3.3, 2.2))


def finetuning(study: Study, loaded: Metrics) -> Plot | None:
    """Return evaluation return against steps, one panel per task."""
    tasks = sorted({run.task for group in study.tuned for run in group.runs}, key=task_place)
    panels, shown = [], set()
    for task in tasks:
        lines = _lines(study, [(group, task_series(group, loaded, "eval/return", task)) for group in study.tuned])
        if lines:
            panels.append(curve_panel(task_title(task), lines, "Steps", "Return"))
            shown |= {label for label, _, _ in lines}
    caption = "Mean evaluation return ± standard error over runs. Thin: only some runs have reached the step."
    return _curve_plot("finetuning", "Finetuning by task", caption, panels, study, shown)


def zero_shot(study: Study, loaded: Metrics) -> Plot | None:
    """Return the task returns of random skills during pre-training, which uses no task reward."""
    keys: dict[tuple[str, str], str] = {}  # (domain, task) → key
    for group in study.pretrain:
        for run in group.runs:
            for key in loaded[run.path]:
                if key.startswith("zero_shot/"):
                    task = key.removeprefix("zero_shot/").removeprefix(f"{run.domain}-")
                    keys[run.domain, task] = key
    panels, shown = [], set()
    for domain, task in sorted(keys, key=lambda pair: task_place("-".join(pair))):
        inside = [_inside(group, domain) for group in study.pretrain]
        key = keys[domain, task]
        lines = _lines(study, [(group, task_series(group, loaded, key)) for group in inside])
        panels.append(curve_panel(f"{words(domain)}: {words(task).lower()}", lines, "Steps", "Return"))
        shown |= {label for label, _, _ in lines}
    caption = (
        "Pre-training: return of random skills on tasks whose reward is not used, mean ± standard error over runs."
    )
    return _curve_plot("zero_shot", "Zero-shot return in pre-training", caption, panels, study, shown)


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
    panels, shown = [], set()
    for key, heading in DIAGNOSTICS.items():
        for domain in domains:
            inside = [_inside(group, domain) for group in study.pretrain]
            lines = _lines(study, [(group, task_series(group, loaded, key)) for group in inside])
            if not lines:
                continue
            chance = _lines(study, [(group, task_series(group, loaded, "skill/chance")) for group in inside])
            base = chance if key == "skill/accuracy" else []
            panels.append(curve_panel(f"{words(domain)}: {heading.lower()}", lines, "Steps", "", base))
            shown |= {label for label, _, _ in lines}
    caption = "Pre-training: mean ± standard error over runs. Dotted: accuracy at chance level."
    plot = _curve_plot("diagnostics", "Pre-training diagnostics", caption, panels, study, shown)
    return plot and replace(plot, columns=len(domains) if len(domains) in (2, 3) else 3, cell=(2.33, 1.6))


def _inside(group: RunGroup, domain: str) -> RunGroup:
    return RunGroup(group.label, group.method, tuple(run for run in group.runs if run.domain == domain))


def _domain_place(domain: str) -> tuple[int, str]:
    """Sort key: domains in the paper's order, then other domains by name."""
    known = list(dict.fromkeys(split_task(task)[0] for task in experts()))
    return (known.index(domain) if domain in known else len(known), domain)


def _curve_plot(
    name: str, heading: str, caption: str, panels: list[Panel], study: Study, shown: set[str]
) -> Plot | None:
    if not panels:
        return None
    legend = {label: style for label, style in study.styles.items() if label in shown}
    return Plot(name, heading, caption, tuple(panels), legend)


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
