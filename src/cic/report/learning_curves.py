"""Learning curves of groups: mean ± standard error at each step, over the runs that reached it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cic.report import statistics
from cic.report.groups import RunGroup, Study
from cic.report.statistics import Band, Bootstrap, curve_matrix, normalised
from cic.report.tables import csv_cell
from cic.runs.contents import FloatArray, Series, metrics
from cic.runs.records import RunRecord
from cic.runs.study_tables import write_rows

WANTED = (
    "eval/return",
    "zero_shot/",
    "reward/intrinsic",
    "coverage/",
    "skill/",
    "embedding/effective_rank",
    "critic/loss",
)
POINTS = 60
"""More are averaged in bins: no figure shows more, and a page of them stays light."""

Metrics = Mapping[Path, Mapping[str, Series]]


@dataclass(frozen=True)
class Curve:
    """The curve of one group."""

    steps: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    complete: int
    """Number of leading steps that every run has reached."""


def load(runs: Sequence[RunRecord], notices: list[str]) -> Metrics:
    """Read the metrics that the figures show, averaged into a limited number of points."""
    loaded = {}
    for run in runs:
        series, problem = metrics(run, WANTED)
        if problem:
            notices.append(problem)
        loaded[run.path] = {key: thin(finite(values)) for key, values in series.items()}
    return loaded


def write_csv(study: Study, loaded: Metrics, folder: Path) -> Path:
    """Write every curve that the figures show to curves.csv: method, task, seed, step, metric, value."""
    rows = [
        (csv_cell(group.label), csv_cell(run.task or run.domain), run.seed, f"{step:.8g}", metric, repr(float(value)))
        for group in study.groups
        for run in group.runs
        for metric, series in loaded[run.path].items()
        for step, value in zip(*series, strict=True)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    return write_rows(folder / "curves.csv", ("method", "task", "seed", "step", "metric", "value"), rows)


def curve(series: Sequence[Series]) -> Curve | None:
    """Return mean ± standard error over runs. Values between logged steps are interpolated, never extrapolated."""
    series = [one for one in series if len(one.steps)]
    if not series:
        return None
    steps = np.unique(np.concatenate([one.steps for one in series]))
    values = np.stack([np.interp(steps, *one, left=np.nan, right=np.nan) for one in series])  # (runs, steps)
    present = np.isfinite(values)
    counts = present.sum(axis=0)
    mean = values.sum(axis=0, where=present) / counts
    squares = ((values - mean) ** 2).sum(axis=0, where=present)
    error = np.sqrt(squares / np.maximum(counts - 1, 1) / counts)
    full = counts == len(series)
    complete = len(full) if full.all() else int(np.flatnonzero(full)[-1]) + 1 if full.any() else 0
    return Curve(steps, mean, mean - error, mean + error, complete)


def metric_series(group: RunGroup, loaded: Metrics, key: str) -> list[Series]:
    """Return one metric of each run of the group that has logged it."""
    return [loaded[run.path][key] for run in group.runs if key in loaded[run.path]]


def normalised_series(group: RunGroup, loaded: Metrics, tasks: Sequence[str]) -> list[Series]:
    """Return evaluation curves as fractions of the expert's return."""
    runs = [(run, loaded[run.path]["eval/return"]) for run in group.runs if "eval/return" in loaded[run.path]]
    return [
        Series(series.steps, series.values * normalised(task, 1.0))
        for task in tasks
        for run, series in runs
        if run.task == task
    ]


def efficiency(
    group: RunGroup, loaded: Metrics, tasks: Sequence[str], bootstrap: Bootstrap
) -> tuple[FloatArray, Band] | None:
    """Return the IQM over tasks and finished runs at each step that all of them reached."""
    rows: dict[str, list[Series]] = {}
    for run in group.runs:
        series = loaded[run.path].get("eval/return")
        if run.finished and run.task in tasks and series is not None and len(series.steps):
            rows.setdefault(run.task, []).append(series)
    if not rows:
        return None
    every = [series.steps for task in rows.values() for series in task]
    start, end = max(steps[0] for steps in every), min(steps[-1] for steps in every)
    grid = np.unique(np.concatenate(every))
    grid = grid[(grid >= start) & (grid <= end)]
    if not len(grid):
        return None
    curves = {t: [np.interp(grid, *s) * normalised(t, 1.0) for s in series] for t, series in rows.items()}
    return grid, statistics.efficiency(curve_matrix(curves), bootstrap)


def finite(series: Series) -> Series:
    """Without the steps at which the value is NaN or infinite."""
    keep = np.isfinite(series.values)
    return Series(series.steps[keep], series.values[keep])


def thin(series: Series, points: int = POINTS) -> Series:
    """At most `points` points, each the mean of its bin."""
    count = len(series.steps)
    if count <= points:
        return series
    edges = np.linspace(0, count, points + 1).astype(int)
    means = [np.array([part[a:b].mean() for a, b in itertools.pairwise(edges)]) for part in series]
    return Series(*means)
