"""Statistics against the paper's numbers, brute force, rliable itself and simulation."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

from cic.core import paper_scores
from cic.core.errors import UserError
from cic.core.paper_scores import experts
from cic.report import statistics
from cic.report.statistics import Bootstrap, Matrix, curve_matrix, matrix

FAST = Bootstrap(reps=400)


def random_matrix(rng: np.random.Generator, runs: int = 10, tasks: int = 4) -> Matrix:
    values = rng.gamma(3.0, 0.25, size=(runs, tasks))
    return Matrix(tuple(f"t{i}" for i in range(tasks)), values)


def paper_matrices() -> dict[str, Matrix]:
    return {
        method: matrix({task: [statistics.normalised(task, score.mean)] for task, score in rows.items()})
        for method, rows in paper_scores.returns().items()
    }


# ---- the paper -----------------------------------------------------------------------------------------------------


def test_paper_mean_row_is_reproduced() -> None:
    published = paper_scores.statistics()
    assert len(published) == 9
    for method, row in published.items():
        mean = statistics.aggregate(paper_matrices()[method], FAST)["mean"].value
        assert mean == pytest.approx(row["mean"], abs=0.01), method


def test_paper_iqm_order_is_reproduced() -> None:
    """The paper ties APT with ProtoRL at two digits; every other pair must come out in its order."""
    published = {method: row["iqm"] for method, row in paper_scores.statistics().items()}
    ours = {m: statistics.aggregate(scores, FAST)["iqm"].value for m, scores in paper_matrices().items()}
    for a, value in published.items():
        for b, other in published.items():
            if value > other:
                assert ours[a] > ours[b], (a, b)
    assert sorted(published, key=ours.__getitem__, reverse=True)[:3] == ["cic", "proto", "apt"]


@pytest.mark.parametrize(("statistic", "tolerance"), [("median", 0.01), ("optimality_gap", 0.01), ("iqm", 0.03)])
def test_paper_other_rows_come_near(statistic: str, tolerance: float) -> None:
    """Task means hide the runs, so the IQM over 12 means is only near the paper's IQM over 120 runs (APS: 0.028)."""
    for method, row in paper_scores.statistics().items():
        ours = statistics.aggregate(paper_matrices()[method], FAST)[statistic].value
        assert ours == pytest.approx(row[statistic], abs=tolerance), method


def test_paper_tables_are_whole() -> None:
    assert len(experts()) == 12
    assert all(len(rows) == 12 for rows in paper_scores.returns().values())
    assert len(paper_scores.returns()) == 10  # the nine methods and DDPG from scratch
    variants = paper_scores.reward_variants()
    for variant, row in variants.items():
        assert row["mean"] == pytest.approx((row["walker"] + row["quadruped"]) / 2, abs=0.0051), variant


# ---- point estimates -------------------------------------------------------------------------------------------------


def brute_iqm(values: list[float]) -> float:
    ordered = sorted(values)
    cut = int(0.25 * len(ordered))
    middle = ordered[cut : len(ordered) - cut]
    return sum(middle) / len(middle)


@pytest.mark.parametrize("shape", [(1, 1), (1, 12), (3, 5), (10, 12), (7, 1)])
def test_aggregates_agree_with_brute_force_and_rliable(shape: tuple[int, int]) -> None:
    metrics = pytest.importorskip("rliable.metrics")
    scores = np.random.default_rng(0).gamma(3.0, 0.3, size=shape)
    median, iqm, mean, gap = statistics.aggregates(scores[None])[0]
    flat = scores.ravel().tolist()
    assert iqm == pytest.approx(brute_iqm(flat))
    assert gap == pytest.approx(sum(max(0.0, 1.0 - score) for score in flat) / len(flat))
    assert median == pytest.approx(metrics.aggregate_median(scores))
    assert iqm == pytest.approx(metrics.aggregate_iqm(scores))
    assert mean == pytest.approx(metrics.aggregate_mean(scores))
    assert gap == pytest.approx(metrics.aggregate_optimality_gap(scores))


def test_holes_are_left_out() -> None:
    scores = matrix(
        {"a": [0.2, float("nan"), 0.4], "b": [0.8], "c": [float("nan")], "d": [0.1, 0.5, 0.9, float("inf")]}
    )
    assert scores.tasks == ("a", "b", "d")
    assert scores.counts.tolist() == [2, 1, 3]
    median, iqm, mean, gap = statistics.aggregates(scores.values[None])[0]
    assert median == pytest.approx(0.5)
    assert mean == pytest.approx((0.3 + 0.8 + 0.5) / 3)
    assert iqm == pytest.approx(brute_iqm([0.2, 0.4, 0.8, 0.1, 0.5, 0.9]))
    assert gap == pytest.approx(1 - (0.2 + 0.4 + 0.8 + 0.1 + 0.5 + 0.9) / 6)


def test_improvement_agrees_with_rliable() -> None:
    metrics = pytest.importorskip("rliable.metrics")
    rng = np.random.default_rng(1)
    a, b = random_matrix(rng, runs=6), random_matrix(rng, runs=9)
    rounded = Matrix(a.tasks, a.values.round(1)), Matrix(b.tasks, b.values.round(1))  # ties
    for x, y in [(a, b), rounded]:
        expected = metrics.probability_of_improvement(x.values, y.values)
        assert statistics.improvement(x, y, FAST).value == pytest.approx(expected)


def test_improvement_with_holes_counts_pairs() -> None:
    a, b = matrix({"t": [1.0, 3.0], "u": [5.0]}), matrix({"t": [2.0, 2.0, 3.0], "u": [1.0]})
    assert statistics.improvement(a, b, FAST).value == pytest.approx(((0 + 2.5) / 6 + 1) / 2)


@pytest.mark.parametrize("ties", [False, True])
def test_order_agrees_with_scipy(ties: bool) -> None:
    rng = np.random.default_rng(3)
    groups, wanted = [random_matrix(rng, runs=5) for _ in range(7)], rng.permutation(7).astype(float)
    if ties:
        groups[1], wanted[2] = groups[0], wanted[3]
    means = [group.values.mean(axis=0).mean() for group in groups]
    expected = scipy.stats.spearmanr(means, wanted).statistic
    found = statistics.order(groups, wanted.tolist(), FAST)
    assert found.value == pytest.approx(expected, abs=1e-12)
    assert found.low < found.value < found.high


def test_order_of_clear_differences_is_certain_and_of_two_methods_unknown() -> None:
    groups = [Matrix(("t",), level + np.linspace(0, 0.1, 4)[:, None]) for level in range(4)]
    assert statistics.order(groups, [1, 2, 3, 4], FAST) == (1, 1, 1)
    assert statistics.order(groups, [4, 3, 2, 1], FAST).value == -1
    assert np.isnan(statistics.order(groups[:2], [1, 2], FAST).value)


def test_profile_is_the_fraction_above() -> None:
    scores = matrix({"a": [0.1, 0.5], "b": [0.5]})
    band = statistics.profile(scores, np.array([0.0, 0.1, 0.4, 0.5]), FAST)
    assert band.value == pytest.approx([1, 2 / 3, 2 / 3, 0])


def test_efficiency_is_the_iqm_at_each_step() -> None:
    rng = np.random.default_rng(2)
    curves = {"a": [rng.random(5) for _ in range(4)], "b": [rng.random(5) for _ in range(2)]}
    band = statistics.efficiency(curve_matrix(curves), FAST)
    for step in range(5):
        assert band.value[step] == pytest.approx(brute_iqm([c[step] for rows in curves.values() for c in rows]))
    assert (band.low <= band.value).all()
    assert (band.value <= band.high).all()


# ---- intervals -------------------------------------------------------------------------------------------------------


def test_intervals_agree_with_brute_force() -> None:
    scores = random_matrix(np.random.default_rng(3))
    ours = statistics.aggregate(scores, Bootstrap(reps=4000))
    rng = np.random.default_rng(4)
    samples = []
    for _ in range(4000):
        columns = [rng.choice(scores.values[:, task], size=10) for task in range(4)]
        samples.append(statistics.aggregates(np.stack(columns, axis=1)[None])[0])
    low, high = np.percentile(np.array(samples), [2.5, 97.5], axis=0)
    for index, name in enumerate(statistics.STATISTICS):
        width = high[index] - low[index]
        assert ours[name].low == pytest.approx(low[index], abs=0.06 * width), name
        assert ours[name].high == pytest.approx(high[index], abs=0.06 * width), name


def test_intervals_agree_with_rliable() -> None:
    library = pytest.importorskip("rliable.library")
    scores = random_matrix(np.random.default_rng(5))
    ours = statistics.aggregate(scores, Bootstrap(reps=4000))
    _, intervals = library.get_interval_estimates(
        {"a": scores.values}, lambda values: statistics.aggregates(values[None])[0], reps=4000
    )
    for index, name in enumerate(statistics.STATISTICS):
        low, high = intervals["a"][:, index]
        assert ours[name].low == pytest.approx(low, abs=0.06 * (high - low)), name
        assert ours[name].high == pytest.approx(high, abs=0.06 * (high - low)), name


def test_holes_widen_the_interval() -> None:
    """A task with three runs must not look as certain as one with twelve."""
    full = {"a": [0.0, 0.5, 1.0] * 4}
    few = {"a": [0.0, 0.5, 1.0] + [float("nan")] * 9, "b": [0.5] * 12}
    whole, part = (statistics.aggregate(matrix(cells), FAST)["mean"] for cells in ({**full, "b": [0.5] * 12}, few))
    assert part.high - part.low > 1.3 * (whole.high - whole.low)


def test_coverage_of_the_intervals() -> None:
    """Of 200 experiments with 10 runs × 4 tasks, 95 % intervals should hold the truth in 95 %; a bootstrap of ten
    runs is known to hold it a little less often. Uniform scores, whose mean and IQM are both the middle."""
    rng = np.random.default_rng(7)
    hits = {"mean": 0, "iqm": 0}
    for seed in range(200):
        scores = Matrix(("a", "b", "c", "d"), rng.uniform(0.2, 0.8, size=(10, 4)))
        estimates = statistics.aggregate(scores, Bootstrap(reps=200, seed=seed))
        for name in hits:
            hits[name] += estimates[name].low <= 0.5 <= estimates[name].high
    assert 0.88 <= hits["mean"] / 200 <= 0.985
    assert 0.88 <= hits["iqm"] / 200 <= 0.985


def test_coverage_of_the_difference() -> None:
    rng = np.random.default_rng(8)
    hits = 0
    for seed in range(100):
        a, b = (Matrix(("a", "b"), rng.normal(center, 0.2, size=(10, 2))) for center in (0.6, 0.4))
        estimate = statistics.difference(a, b, Bootstrap(reps=200, seed=seed))["mean"]
        hits += estimate.low <= 0.2 <= estimate.high
    assert 0.86 <= hits / 100 <= 0.99


def test_same_seed_same_interval_whatever_numpys_global_state() -> None:
    scores = random_matrix(np.random.default_rng(9))
    np.random.seed(1)  # noqa: NPY002
    first = statistics.aggregate(scores, FAST)
    np.random.seed(2)  # noqa: NPY002
    assert statistics.aggregate(scores, FAST) == first
    assert statistics.aggregate(scores, Bootstrap(reps=400, seed=1)) != first


def test_single_runs_have_no_interval() -> None:
    estimate = statistics.aggregate(matrix({"a": [0.5], "b": [0.7]}), FAST)["mean"]
    assert estimate.value == pytest.approx(0.6)
    assert np.isnan([estimate.low, estimate.high]).all()


def test_many_runs_against_a_single_one_have_no_interval() -> None:
    many, single = matrix({"a": [0.5, 0.6, 0.7]}), matrix({"a": [0.4]})
    for x, y in ((many, single), (single, many)):
        found = [statistics.improvement(x, y, FAST), *statistics.difference(x, y, FAST).values()]
        assert np.isnan([[estimate.low, estimate.high] for estimate in found]).all()


@pytest.mark.parametrize("size", [1, 700, 10**9])
def test_chunk_size_does_not_change_the_interval(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = random_matrix(np.random.default_rng(6))
    expected = statistics.aggregate(scores, FAST)
    monkeypatch.setattr(statistics, "_CHUNK", size)
    found = statistics.aggregate(scores, FAST)
    for name, estimate in expected.items():
        assert found[name] == pytest.approx(estimate)


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_nothing_to_aggregate_is_reported() -> None:
    with pytest.raises(UserError, match="at least one run"):
        statistics.aggregate(matrix({"a": [float("nan")]}), FAST)


def test_no_common_task_is_reported() -> None:
    with pytest.raises(UserError, match="no task in common"):
        statistics.improvement(matrix({"a": [1.0]}), matrix({"b": [1.0]}), FAST)


@pytest.mark.parametrize("bad", [{"reps": 0}, {"confidence": 1.0}, {"confidence": 0.0}])
def test_bad_bootstrap_is_reported(bad: dict[str, float]) -> None:
    with pytest.raises(UserError):
        Bootstrap(**bad)  # type: ignore[arg-type]


def test_importing_is_light() -> None:
    code = "import sys, cic.report.statistics, cic.runs.records, cic.report; print([m for m in %r if m in sys.modules])"
    heavy = ["rliable", "matplotlib", "pandas", "scipy", "torch"]
    found = subprocess.run([sys.executable, "-c", code % heavy], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
