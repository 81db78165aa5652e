"""Zero-shot returns: task returns of random skills during pre-training, which never uses these rewards.

Training logs them (`zero_shot/TASK`: the mean return of the episodes since the last line). The number of a run is the
mean over the last quarter of its steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cic.experiments.experiment import ExperimentResult, tasks_of
from cic.experiments.experiment_runs import ExperimentRun, ExperimentRuns
from cic.experiments.panels import dots_panel, legend, mean_text, styles
from cic.report.figures import Plot
from cic.report.figures.curve_plots import curve_panel
from cic.report.learning_curves import curve
from cic.report.tables import Table, count, words
from cic.runs.contents import Series

LAST = 0.75


def zero_shot(found: ExperimentRuns, member: ExperimentRun, tasks: Sequence[str]) -> Series | None:
    """Return the mean over tasks at each logged step."""
    series = [one for task in tasks if (one := found.series(member, f"zero_shot/{task}")) is not None]
    if not series:
        return None
    return Series(series[0].steps, np.mean([np.interp(series[0].steps, *one) for one in series], axis=0))


def at_the_end(series: Series | None) -> float:
    """Return the mean over the last quarter; NaN for a run that logged nothing."""
    if series is None or not len(series.steps):
        return float("nan")
    late = series.steps >= LAST * series.steps[-1]
    return float(series.values[late].mean())


def name_of(domain: str, tasks: Sequence[str]) -> str:
    """ "Quadruped: stand", or the domain alone if several tasks are averaged."""
    return f"{words(domain)}: {words(tasks[0]).lower()}" if len(tasks) == 1 else f"{words(domain)}: mean of its tasks"


def compare_variants(found: ExperimentRuns, name: str, title: str, wanted: Sequence[str]) -> ExperimentResult:
    """Compare variants in one domain: curves, and the return over the last quarter."""
    (domain,) = dict.fromkeys(member.domain for member in found.members)
    tasks = tasks_of(domain, wanted)
    looks = styles(found.variants)
    lines, ends, data = [], {}, []
    for variant in found.variants:
        series = [(member, zero_shot(found, member, tasks)) for member in found.of(variant)]
        there = [one for _, one in series if one is not None]
        ends[variant] = [at_the_end(one) for one in there]
        if there and (line := curve(there)) is not None:
            lines.append((found.label(variant), looks[variant], line))
        data += [row for member, one in series if one is not None for row in rows(variant, member.seed, one)]
    heading = name_of(domain, tasks)
    panels = (
        curve_panel(heading, lines, "Pre-training steps", "Zero-shot return"),
        dots_panel(found, "Last quarter of pre-training", ends, "Zero-shot return"),
    )
    caption = (
        "Return of random skills on a task that the agent never sees, while it is pre-trained. Lines: mean ± standard "
        "error over runs. Right: each run's mean over the last quarter of its steps."
    )
    plot = Plot(name, title, caption, panels, legend(found), columns=2, cell=(3.3, 2.2), alone=(3.6, 2.5))
    text = summary(found, ends, f"Zero-shot return on {heading.lower()}")
    return ExperimentResult((plot,), text, (_table(found, name, title, ends),), data)


def _table(found: ExperimentRuns, name: str, title: str, ends: Mapping[str, Sequence[float]]) -> Table:
    """Return and state coverage: a collapsed policy covers few states."""
    lines, records = [], []
    for variant in found.variants:
        cells = [found.series(member, "coverage/fraction") for member in found.of(variant)]
        covered = [float(one.values[-1]) for one in cells if one is not None and len(one.values)]
        lines.append([variant, mean_text(ends[variant]), mean_text(covered, 3)])
        records += [{"variant": variant, "measure": "zero_shot_return", "value": value} for value in ends[variant]]
        records += [{"variant": variant, "measure": "coverage", "value": value} for value in covered]
    caption = "Means ± standard errors over runs. Coverage: share of a grid of states that pre-training visited."
    header = ("Variant", "Zero-shot return, last quarter", "Coverage at the end")
    return Table(name, title, caption, header, lines, records=records)


def summary(found: ExperimentRuns, ends: Mapping[str, Sequence[float]], what: str) -> str:
    steps = max((record.steps for record in found.records), default=0)
    numbers = "; ".join(f"{variant}: {mean_text(values)}" for variant, values in ends.items())
    runs = sorted({len(values) for values in ends.values()})
    seeds = " to ".join(dict.fromkeys((str(runs[0]), str(runs[-1])))) if runs else "0"
    plural = "" if runs == [1] else "s"
    return f"{what} over the last quarter of {count(steps)} steps ({seeds} seed{plural} each). {numbers}."


def rows(variant: str, seed: int, series: Series) -> list[dict[str, Any]]:
    return [
        {"variant": variant, "seed": seed, "step": int(step), "zero_shot_return": float(value)}
        for step, value in zip(series.steps, series.values, strict=True)
    ]
