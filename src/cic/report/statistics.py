"""Aggregate statistics of expert-normalised scores with stratified bootstrap intervals.

The statistics and the bootstrap (each task resamples its own runs, percentile intervals) are those of Agarwal et al.
2021, "Deep RL at the edge of the statistical precipice". Tests compare them with the authors' package rliable, which
takes three seconds to import and draws one resample at a time. Two things differ:

- A matrix may have missing runs (NaN). Each task resamples the runs that it has. Mean and median weigh tasks equally;
  IQM, optimality gap and profile pool the runs, so a task with fewer runs counts less.
- The seed of the resampling is an argument. rliable 1.2.0 ignores its `random_state`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.paper_scores import experts

FloatArray = npt.NDArray[np.float64]

_CHUNK = 4_000_000  # numbers in one chunk of resamples

STATISTICS = ("median", "iqm", "mean", "optimality_gap")


class Estimate(NamedTuple):
    """A statistic and its interval; the interval is NaN with one run per task."""

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
    """Settings of the intervals."""

    reps: int = 2000
    """Resamples per interval."""
    confidence: float = 0.95
    """Coverage of the intervals."""
    seed: int = 0
    """Seed of the resampling."""

    def __post_init__(self) -> None:
        if self.reps < 1:
            raise UserError(f"reps must be at least 1, not {self.reps}")
        if not 0 < self.confidence < 1:
            raise UserError(f"confidence must be between 0 and 1, not {self.confidence}")


@dataclass(frozen=True)
class Matrix:
    """Scores, runs × tasks (× steps). Each column lists the runs of its task and ends with NaN where it has fewer."""

    tasks: tuple[str, ...]
    values: FloatArray

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Runs per task."""
        present = np.isfinite(self.values).all(axis=tuple(range(2, self.values.ndim)))
        counts: npt.NDArray[np.int64] = present.sum(axis=0)
        return counts

    def only(self, tasks: Sequence[str]) -> Matrix:
        columns = [self.tasks.index(task) for task in tasks]
        return Matrix(tuple(tasks), self.values[:, columns])


def matrix(scores: Mapping[str, Sequence[float]]) -> Matrix:
    """Build a matrix from {task: scores of its runs}, without NaN or infinite scores and tasks that have no score."""
    columns = {task: [score for score in values if math.isfinite(score)] for task, values in scores.items()}
    return _pack({task: np.array(column, dtype=np.float64) for task, column in columns.items() if column}, ())


def curve_matrix(curves: Mapping[str, Sequence[FloatArray]]) -> Matrix:
    """Build runs × tasks × steps from {task: curves of its runs}, all over the same steps."""
    columns = {task: np.stack(rows) for task, rows in curves.items() if len(rows)}
    shape = next(iter(columns.values())).shape[1:] if columns else (0,)
    return _pack(columns, shape)


def _pack(columns: Mapping[str, FloatArray], shape: tuple[int, ...]) -> Matrix:
    rows = max((len(column) for column in columns.values()), default=0)
    values = np.full((rows, len(columns), *shape), np.nan)
    for index, column in enumerate(columns.values()):
        values[: len(column), index] = column
    return Matrix(tuple(columns), values)


def normalised(task: str, score: float) -> float:
    """Return the score as a fraction of the expert's; NaN for a task without an expert score."""
    return score / experts().get(task, math.nan)


# ---- statistics of one matrix: (B, runs, tasks, …) → (B, values), for B resamples with the same missing runs ---------


def aggregates(scores: FloatArray) -> FloatArray:
    """Return [median, IQM, mean, optimality gap] of runs × tasks; runs may be missing."""
    present = np.isfinite(scores[0])
    means = scores.sum(axis=1, where=present) / present.sum(axis=0)  # (B, tasks)
    pool = scores[:, present]
    gap = 1.0 - np.minimum(pool, 1.0).mean(axis=1)
    return np.stack([np.median(means, axis=1), iqm(pool), means.mean(axis=1), gap], axis=1)


def iqm(pool: FloatArray) -> FloatArray:
    """Return the mean of the middle half of the second axis."""
    size = pool.shape[1]
    cut = size // 4
    middle: FloatArray = np.sort(pool, axis=1)[:, cut : size - cut].mean(axis=1)
    return middle


def aggregate(scores: Matrix, bootstrap: Bootstrap) -> dict[str, Estimate]:
    """Return each of `STATISTICS` with its interval."""
    band = _estimate(aggregates, [scores], bootstrap)
    return {name: _at(band, index) for index, name in enumerate(STATISTICS)}


def profile(scores: Matrix, thresholds: FloatArray, bootstrap: Bootstrap) -> Band:
    """Return the fraction of runs with a score above each threshold."""

    def above(values: FloatArray) -> FloatArray:
        pool = values[:, np.isfinite(values[0])]
        return np.stack([(pool > threshold).mean(axis=1) for threshold in thresholds], axis=1)

    return _estimate(above, [scores], bootstrap)


def efficiency(curves: Matrix, bootstrap: Bootstrap) -> Band:
    """Return the IQM at each step of runs × tasks × steps."""

    def along(values: FloatArray) -> FloatArray:
        return iqm(values[:, np.isfinite(values[0]).all(axis=2)])

    return _estimate(along, [curves], bootstrap)


# ---- statistics of two matrices ------------------------------------------------------------------------------------


def improvement(a: Matrix, b: Matrix, bootstrap: Bootstrap) -> Estimate:
    """Return P(run of A > run of B), averaged over tasks; ties count half (Mann–Whitney's U)."""
    a, b = _same_tasks(a, b)
    pairs = a.counts * b.counts

    def probability(x: FloatArray, y: FloatArray) -> FloatArray:
        x, y = x[:, :, None], y[:, None]  # (B, runs of A, runs of B, tasks)
        wins = (x > y).sum(axis=(1, 2)) + 0.5 * (x == y).sum(axis=(1, 2))  # comparisons with NaN are false
        chance: FloatArray = (wins / pairs).mean(axis=1, keepdims=True)
        return chance

    return _at(_estimate(probability, [a, b], bootstrap), 0)


def difference(a: Matrix, b: Matrix, bootstrap: Bootstrap) -> dict[str, Estimate]:
    """Return A − B for each of `STATISTICS`, with both groups resampled."""
    a, b = _same_tasks(a, b)
    band = _estimate(lambda x, y: aggregates(x) - aggregates(y), [a, b], bootstrap)
    return {name: _at(band, index) for index, name in enumerate(STATISTICS)}


def order(groups: Sequence[Matrix], reference: Sequence[float], bootstrap: Bootstrap) -> Estimate:
    """Return Spearman's rank correlation of the groups' mean scores with `reference`; NaN below three groups.

    The interval comes from resampled runs. It does not cover the choice of methods.
    """
    from scipy.stats import rankdata  # slow to import

    if len(groups) < 3:
        return Estimate(math.nan)
    wanted = rankdata(reference)

    def correlation(*scores: FloatArray) -> FloatArray:
        found = rankdata([aggregates(each)[:, STATISTICS.index("mean")] for each in scores], axis=0).T
        a, b = (ranks - ranks.mean(axis=-1, keepdims=True) for ranks in (found, wanted))
        spread = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
        rho: FloatArray = (a * b).sum(axis=-1) / np.where(spread, spread, np.inf)
        return rho[:, None]

    return _at(_estimate(correlation, groups, bootstrap), 0)


def standard_error(values: Sequence[float] | FloatArray) -> float:
    """Return the standard error of the mean; NaN for a single value."""
    count = len(values)
    return float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else math.nan


def _same_tasks(a: Matrix, b: Matrix) -> tuple[Matrix, Matrix]:
    common = [task for task in a.tasks if task in b.tasks]
    if not common:
        raise UserError("the two groups have no task in common: choose runs of the same tasks")
    return a.only(common), b.only(common)


# ---- resampling ----------------------------------------------------------------------------------------------------


def _estimate(statistic: Callable[..., FloatArray], groups: Sequence[Matrix], bootstrap: Bootstrap) -> Band:
    """Return the statistic and its interval; no interval if a group has only one run of each task."""
    for group in groups:
        if not group.tasks or not group.counts.all():
            raise UserError("a statistic needs at least one run in each task")
    value = statistic(*(group.values[None] for group in groups))[0]
    if min(group.counts.max() for group in groups) < 2:
        missing = np.full_like(value, np.nan)
        return Band(value, missing, missing)
    rng = np.random.default_rng(bootstrap.seed)
    most = max(1, _CHUNK // (groups[0].values.size * len(groups[-1].values)))
    sizes = [min(most, bootstrap.reps - start) for start in range(0, bootstrap.reps, most)]
    drawn = np.concatenate([statistic(*(_resample(group, size, rng) for group in groups)) for size in sizes])
    tail = (1 - bootstrap.confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    return Band(value, low, high)


def _resample(group: Matrix, size: int, rng: np.random.Generator) -> FloatArray:
    """Draw `size` matrices (size, runs, tasks, …) of whole runs; missing runs stay missing."""
    runs, tasks = group.values.shape[:2]
    drawn = (rng.random((size, runs, tasks)) * group.counts).astype(np.intp)
    place = np.arange(runs)[:, None]
    values: FloatArray = group.values[np.where(place < group.counts, drawn, place), np.arange(tasks)]
    return values


def _at(band: Band, index: int) -> Estimate:
    return Estimate(float(band.value[index]), float(band.low[index]), float(band.high[index]))
