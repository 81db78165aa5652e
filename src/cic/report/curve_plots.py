"""The figures of curves: finetuning and pre-training against environment steps, one line per group of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cic.records import FloatArray, Series
from cic.report.curves import Curve, Metrics, curve, efficiency, normalised_series, task_series
from cic.report.figures import Panel, Plot
from cic.report.groups import Group, Study, count
from cic.report.options import ReportOptions
from cic.report.score_tables import words
from cic.report.scores import Scores, task_place
from cic.report.style import Style
from cic.statistics import Band

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Line = tuple[str, Style, Curve]


def sample_efficiency(study: Study, loaded: Metrics, scores: Scores, options: ReportOptions) -> Plot | None:
    """The paper's curves: normalised score against finetuning steps, over all tasks and by domain."""
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
        _step_axis(axes, "Finetuning steps", "IQM, normalised")

    panels = [Panel("All tasks (IQM)", draw, "IQM of the normalised score against finetuning steps.")]
    for domain in dict.fromkeys(task.split("-")[0] for task in scores.tasks):
        tasks = [task for task in scores.tasks if task.split("-")[0] == domain]
        lines = _lines(study.finetune, study, lambda group, tasks=tasks: normalised_series(group, loaded, tasks))  # type: ignore[misc]
        panels.append(_curve_panel(f"{words(domain)} (mean)", lines, "Finetuning steps", "Mean, normalised"))
    caption = "Normalised score while finetuning: IQM with bootstrap intervals, and mean ± standard error by domain."
    legend = {group.label: study.styles[group.label] for group, _ in overall}
    return Plot("sample_efficiency", "Sample efficiency", caption, tuple(panels), legend, columns=2, cell=(3.3, 2.2))


def finetuning(study: Study, loaded: Metrics) -> Plot | None:
    """Evaluation return against steps, a panel per task."""
    tasks = sorted({run.task for group in study.finetune for run in group.runs}, key=task_place)
    panels, shown = [], set()
    for task in tasks:
        lines = _lines(study.finetune, study, lambda group, task=task: task_series(group, loaded, "eval/return", task))  # type: ignore[misc]
        if lines:
            panels.append(_curve_panel(task_title(task), lines, "Steps", "Return"))
            shown |= {label for label, _, _ in lines}
    caption = (
        "Mean evaluation return ± standard error over runs. A thin line goes on where only some runs have got so far."
    )
    return _curve_plot("finetuning", "Finetuning by task", caption, panels, study, shown)


def zero_shot(study: Study, loaded: Metrics) -> Plot | None:
    """What pre-training's random skills earn on each task, though no reward is ever shown to them."""
    keys: dict[str, set[str]] = {}
    for group in study.pretrain:
        for run in group.runs:
            for key in loaded[run.path]:
                if key.startswith("zero_shot/"):
                    task = key.removeprefix("zero_shot/")
                    keys.setdefault(task if "-" in task else f"{run.domain}-{task}", set()).add(key)
    panels, shown = [], set()
    for task in sorted(keys, key=task_place):
        domain = task.split("-")[0]

        def of(group: Group, domain: str = domain, names: set[str] = keys[task]) -> list[Series]:
            inside = Group(group.label, group.method, tuple(run for run in group.runs if run.domain == domain))
            return [series for key in names for series in task_series(inside, loaded, key)]

        lines = _lines(study.pretrain, study, of)
        panels.append(_curve_panel(task_title(task), lines, "Steps", "Return"))
        shown |= {label for label, _, _ in lines}
    caption = (
        "Pre-training: return of random skills on tasks that the agent never sees, mean ± standard error over runs."
    )
    return _curve_plot("zero_shot", "Zero-shot return in pre-training", caption, panels, study, shown)


DIAGNOSTICS = {
    "reward/intrinsic": "Intrinsic reward",
    "coverage/fraction": "State coverage",
    "skill/accuracy": "Skill accuracy",
    "embedding/effective_rank": "Effective rank",
    "critic/loss": "Critic loss",
}


def diagnostics(study: Study, loaded: Metrics) -> Plot | None:
    """Signs of life and of collapse, a panel per quantity and domain."""
    panels, shown = [], set()
    for domain in sorted({run.domain for group in study.pretrain for run in group.runs}):
        inside = [
            Group(group.label, group.method, tuple(run for run in group.runs if run.domain == domain))
            for group in study.pretrain
        ]
        for key, heading in DIAGNOSTICS.items():
            lines = _lines(inside, study, lambda group, key=key: task_series(group, loaded, key))  # type: ignore[misc]
            if not lines:
                continue
            chance = _lines(inside, study, lambda group: task_series(group, loaded, "skill/chance"))
            base = chance if key == "skill/accuracy" else []
            panels.append(_curve_panel(f"{words(domain)}: {heading.lower()}", lines, "Steps", "", base))
            shown |= {label for label, _, _ in lines}
    caption = "Pre-training: mean ± standard error over runs. Dotted: what guessing the skill would score."
    plot = _curve_plot("diagnostics", "Pre-training diagnostics", caption, panels, study, shown)
    return plot and replace(plot, columns=3, cell=(2.33, 1.6))


def _curve_plot(
    name: str, heading: str, caption: str, panels: list[Panel], study: Study, shown: set[str]
) -> Plot | None:
    if not panels:
        return None
    legend = {label: style for label, style in study.styles.items() if label in shown}
    return Plot(name, heading, caption, tuple(panels), legend)


def _lines(groups: Sequence[Group], study: Study, series: Callable[[Group], list[Series]]) -> list[Line]:
    found = [(group.label, study.styles[group.label], curve(series(group))) for group in groups]
    return [(label, style, line) for label, style, line in found if line is not None]


def _curve_panel(heading: str, lines: Sequence[Line], x: str, y: str, base: Sequence[Line] = ()) -> Panel:
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
        _step_axis(axes, x, y if first else "")

    last = ", ".join(f"{label} {line.mean[-1]:.3g}" for label, _, line in lines)
    return Panel(heading, draw, f"{heading} against {x.lower()}. Last values: {last}.")


def _step_axis(axes: Axes, x: str, y: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set(xlabel=x, ylabel=y)
    axes.set_xlim(left=0)


def task_title(task: str) -> str:
    domain, _, name = task.partition("-")
    return f"{words(domain)}: {words(name).lower()}" if name else words(domain)


def draw_band(axes: Axes, x: FloatArray, band: Band, style: Style, index: int) -> None:
    _line(axes, x, band.value, style, index)
    if np.isfinite(band.low).all():
        axes.fill_between(x, band.low, band.high, color=style.colour, alpha=0.13, linewidth=0)


def _line(axes: Axes, x: FloatArray, y: FloatArray, style: Style, index: int) -> None:
    """Markers are staggered, so that those of neighbouring lines do not cover each other."""
    every = max(1, len(x) // 5)
    axes.plot(x, y, **style.line, **style.point, markersize=3.2, markevery=(index % every, every))
