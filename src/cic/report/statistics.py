"""Returns → expert-normalised scores → aggregate statistics with stratified bootstrap intervals.

The statistics are those of Agarwal et al. 2021 ("Deep RL at the edge of the statistical precipice"), as pure functions
of a (runs × tasks) matrix, resampled by `rliable`. Two things differ from calling rliable directly:

- A matrix may have holes (NaN). Each task resamples the runs that it has, and keeps their number. Mean and median
  weigh tasks equally; IQM, optimality gap and profile pool the runs, so a task with fewer runs counts less.
- The seed of the resampling is an argument. rliable 1.2.0 takes a `random_state` and then draws from numpy's
  global generator.

rliable takes three seconds to import, so it is imported when the first interval is asked for.
"""

from __future__ import annotations

import csv
import functools
import importlib.resources
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError

FloatArray = npt.NDArray[np.float64]

STATISTICS = ("median", "iqm", "mean", "optimality_gap")


class Estimate(NamedTuple):
    """A statistic and its interval, which is NaN where one run per task leaves nothing to resample."""

    value: float
    low: float = math.nan
    high: float = math.nan


class Band(NamedTuple):
    """A statistic along an axis (steps, thresholds) and its pointwise interval."""

    value: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made."""

    reps: int = 2000
    """Resamples per interval."""
    confidence: float = 0.95
    """How often the interval should hold the true value."""
    seed: int = 0
    """Seed of the resampling: the same runs give the same intervals."""

    def __post_init__(self) -> None:
        if self.reps < 1:
            raise UserError(f"reps must be at least 1, not {self.reps}")
        if not 0 < self.confidence < 1:
            raise UserError(f"confidence must be between 0 and 1, not {self.confidence}")


@dataclass(frozen=True)
class Matrix:
    """Scores, runs × tasks (× steps). A column's runs come first, NaN fills the rest: rows of different tasks are
    different runs."""

    tasks: tuple[str, ...]
    values: FloatArray

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Runs per task."""
        present = np.isfinite(self.values.reshape(*self.values.shape[:2], -1)).all(axis=2)
        counts: npt.NDArray[np.int64] = present.sum(axis=0)
        return counts

    def only(self, tasks: Sequence[str]) -> Matrix:
        columns = [self.tasks.index(task) for task in tasks]
        return Matrix(tuple(tasks), self.values[:, columns])


def matrix(scores: Mapping[str, Sequence[float]]) -> Matrix:
    """{task: scores of its runs} → a matrix. Scores that are not finite are left out, and tasks without any."""
    columns = {task: [score for score in values if math.isfinite(score)] for task, values in scores.items()}
    return _pack({task: np.array(column, dtype=np.float64) for task, column in columns.items() if column}, ())


def curve_matrix(curves: Mapping[str, Sequence[FloatArray]]) -> Matrix:
    """{task: curves of its runs, all over the same steps} → runs × tasks × steps."""
    columns = {task: np.stack(rows) for task, rows in curves.items() if len(rows)}
    shape = next(iter(columns.values())).shape[1:] if columns else (0,)
    return _pack(columns, shape)


def _pack(columns: Mapping[str, FloatArray], shape: tuple[int, ...]) -> Matrix:
    rows = max((len(column) for column in columns.values()), default=0)
    values = np.full((rows, len(columns), *shape), np.nan)
    for index, column in enumerate(columns.values()):
        values[: len(column), index] = column
    return Matrix(tuple(columns), values)


# ---- scores ------------------------------------------------------------------------------------------------------


def table(name: str) -> list[dict[str, str]]:
    """A CSV of the package's data, one dict per row."""
    text = importlib.resources.files("cic").joinpath("data", f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@functools.cache
def experts() -> Mapping[str, float]:
    """Task → return of the expert (DDPG after 2M steps of the task's own reward): what counts as 1."""
    return {f"{row['domain']}-{row['task']}": float(row["expert"]) for row in table("scores")}


def normalised(task: str, score: float) -> float:
    """Score as a fraction of the expert's; NaN for a task without one."""
    return score / experts().get(task, math.nan)


# ---- statistics of one matrix --------------------------------------------------------------------------------------


def aggregates(scores: FloatArray) -> FloatArray:
    """[median, IQM, mean, optimality gap] of runs × tasks: rliable's four metrics, holes allowed."""
    present = np.isfinite(scores)
    means = scores.sum(axis=0, where=present) / present.sum(axis=0)  # per task
    pool = scores[present]
    gap = 1.0 - np.minimum(pool, 1.0).mean()
    return np.array([np.median(means), iqm(pool), means.mean(), gap])


def iqm(pool: FloatArray) -> FloatArray:
    """Mean of the middle half of the first axis."""
    cut = len(pool) // 4
    middle: FloatArray = np.sort(pool, axis=0)[cut : len(pool) - cut].mean(axis=0)
    return middle


def aggregate(scores: Matrix, bootstrap: Bootstrap) -> dict[str, Estimate]:
    """Each of `STATISTICS` with its interval."""
    band = _estimate(aggregates, [scores], bootstrap)
    return {name: _at(band, index) for index, name in enumerate(STATISTICS)}


def profile(scores: Matrix, thresholds: FloatArray, bootstrap: Bootstrap) -> Band:
    """Fraction of runs with a score above each threshold."""

    def above(values: FloatArray) -> FloatArray:
        pool = np.sort(values[np.isfinite(values)])
        return 1.0 - np.searchsorted(pool, thresholds, side="right") / len(pool)

    return _estimate(above, [scores], bootstrap)


def efficiency(curves: Matrix, bootstrap: Bootstrap) -> Band:
    """IQM at each step, from runs × tasks × steps."""

    def along(values: FloatArray) -> FloatArray:
        return iqm(values[np.isfinite(values).all(axis=2)])

    return _estimate(along, [curves], bootstrap)


# ---- statistics of two matrices ------------------------------------------------------------------------------------


def improvement(a: Matrix, b: Matrix, bootstrap: Bootstrap) -> Estimate:
    """P(a run of A beats a run of B), averaged over tasks; ties count half (Mann–Whitney's U)."""
    a, b = _same_tasks(a, b)
    pairs = a.counts * b.counts

    def probability(x: FloatArray, y: FloatArray) -> FloatArray:
        wins = (x[:, None] > y[None]) + 0.5 * (x[:, None] == y[None])  # NaN beats nothing
        return np.atleast_1d((wins.sum(axis=(0, 1)) / pairs).mean())

    return _at(_estimate(probability, [a, b], bootstrap), 0)


def difference(a: Matrix, b: Matrix, bootstrap: Bootstrap) -> dict[str, Estimate]:
    """A − B of each of `STATISTICS`, both groups resampled."""
    a, b = _same_tasks(a, b)
    band = _estimate(lambda x, y: aggregates(x) - aggregates(y), [a, b], bootstrap)
    return {name: _at(band, index) for index, name in enumerate(STATISTICS)}


def standard_error(values: Sequence[float] | FloatArray) -> float:
    """Of the mean; NaN for a single value."""
    count = len(values)
    return float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else math.nan


def _same_tasks(a: Matrix, b: Matrix) -> tuple[Matrix, Matrix]:
    common = [task for task in a.tasks if task in b.tasks]
    if not common:
        raise UserError("the two groups have no task in common")
    return a.only(common), b.only(common)


# ---- resampling ----------------------------------------------------------------------------------------------------


def _estimate(statistic: Callable[..., FloatArray], groups: Sequence[Matrix], bootstrap: Bootstrap) -> Band:
    for group in groups:
        if not group.tasks or not group.counts.all():
            raise UserError("a statistic needs at least one run in each task")
    value = statistic(*(group.values for group in groups))
    if max(group.counts.max() for group in groups) < 2:
        nothing = np.full_like(value, np.nan)
        return Band(value, nothing, nothing)
    resampled = _resampler()([group.values for group in groups], [group.counts for group in groups], bootstrap.seed)
    low, high = resampled.conf_int(statistic, reps=bootstrap.reps, size=bootstrap.confidence, method="percentile")
    return Band(value, low, high)


def _at(band: Band, index: int) -> Estimate:
    return Estimate(float(band.value[index]), float(band.low[index]), float(band.high[index]))


@functools.cache
def _resampler() -> Any:
    try:
        from rliable.library import StratifiedIndependentBootstrap
    except ModuleNotFoundError as error:
        raise UserError(f"intervals need the package {error.name}: pip install 'cic[report]'") from None

    class Resampler(StratifiedIndependentBootstrap):  # type: ignore[misc]
        """rliable's stratified bootstrap of one or more groups, with holes and a seed of its own."""

        def __init__(self, arrays: list[FloatArray], counts: list[npt.NDArray[np.int64]], seed: int) -> None:
            super().__init__(*arrays)
            self._counts, self._rng = counts, np.random.default_rng(seed)

        def update_indices(self) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
            indices = [self._rows(*group) for group in zip(self._args_shapes, self._counts, strict=True)]
            return indices, {}

        def _rows(self, shape: tuple[int, ...], counts: npt.NDArray[np.int64]) -> tuple[Any, ...]:
            """Whole runs are drawn, so a curve stays one run's curve; holes stay holes."""
            drawn = (self._rng.random(shape[:2]) * counts).astype(np.intp)
            place = np.arange(shape[0])[:, None]
            return np.where(place < counts, drawn, place), np.arange(shape[1])

    return Resampler
