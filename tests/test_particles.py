"""Nearest neighbours, running statistics and the effective rank against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import Welford, distances, doubles, steady
from hypothesis import given, settings
from hypothesis import strategies as st

from cic.learning.particles import RunningStatistics, effective_rank, knn_distances


def points(count: int, dim: int, seed: int = 0) -> torch.Tensor:
    """On a grid of 2⁻¹², so that shifting them by 1000 loses no bit."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy((rng.integers(0, 4096, (count, dim)) / 4096).astype(np.float32))


def nearest(queries: torch.Tensor, keys: torch.Tensor, k: int) -> np.ndarray:
    return np.sort(distances(doubles(queries), doubles(keys)), axis=1)[:, :k]


def found(queries: torch.Tensor, keys: torch.Tensor, k: int) -> np.ndarray:
    result = knn_distances(queries, keys, k)
    assert result.shape == (len(queries), k)
    return np.sort(result.double().numpy(), axis=1)


@pytest.mark.parametrize(("count", "dim", "k"), [(40, 3, 16), (12, 64, 12), (7, 1, 1), (30, 5, 29)])
def test_neighbours_are_those_of_a_brute_force_search(count: int, dim: int, k: int) -> None:
    cloud = points(count, dim)
    np.testing.assert_allclose(found(cloud, cloud, k), nearest(cloud, cloud, k), rtol=1e-6, atol=1e-7)


def test_queries_may_differ_from_keys() -> None:
    queries, keys = points(9, 4, seed=1), points(31, 4, seed=2)
    np.testing.assert_allclose(found(queries, keys, 6), nearest(queries, keys, 6), rtol=1e-6)


def test_a_point_is_its_own_neighbour_at_exactly_zero() -> None:
    cloud = torch.randn(50, 64, generator=torch.Generator().manual_seed(0)) * 30
    for points_apart in (cloud, cloud + 1e4):
        assert (found(points_apart, points_apart, 1) == 0).all()
    assert (found(cloud, cloud, 2)[:, 1] > 0).all()


def test_duplicates_are_neighbours_at_exactly_zero() -> None:
    cloud = points(10, 8).repeat_interleave(3, dim=0)
    got = found(cloud, cloud, 5)
    assert (got[:, :3] == 0).all()
    assert (got[:, 3:] > 0).all()
    np.testing.assert_allclose(got, nearest(cloud, cloud, 5), rtol=1e-6)


@pytest.mark.parametrize("offset", [10.0, 1e3])
def test_a_shift_of_all_points_changes_no_distance(offset: float) -> None:
    cloud = points(64, 4)
    shifted = cloud + offset
    assert torch.equal(shifted - offset, cloud)  # the shift itself is exact
    np.testing.assert_allclose(found(shifted, shifted, 8), nearest(cloud, cloud, 8), rtol=1e-5, atol=1e-6)


def test_neighbours_change_no_input() -> None:
    cloud = points(20, 4)
    before = cloud.clone()
    knn_distances(cloud, cloud, 3)
    assert torch.equal(cloud, before)


@given(st.lists(st.integers(2, 40), min_size=1, max_size=6), st.integers(0, 2**31), st.floats(0.1, 100))
@settings(steady, max_examples=60)
def test_running_statistics_are_welfords(sizes: list[int], seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    ours, reference = RunningStatistics(), Welford()
    for index, size in enumerate(sizes):
        values = (scale * rng.standard_normal((size, 2)) + index).astype(np.float32)
        ours.update(torch.from_numpy(values))
        reference.add(values.astype(np.float64))
        np.testing.assert_allclose(float(ours.mean), reference.mean, rtol=1e-4, atol=1e-4 * scale)
        np.testing.assert_allclose(float(ours.var), reference.var, rtol=1e-4)
        np.testing.assert_allclose(float(ours.std), np.sqrt(reference.var), rtol=1e-4)
        np.testing.assert_allclose(float(ours.count), reference.count, rtol=1e-6)


def test_running_statistics_start_as_released_and_are_buffers() -> None:
    ours = RunningStatistics()
    assert {name: float(value) for name, value in ours.state_dict().items()} == pytest.approx(
        {"mean": 0.0, "var": 1.0, "count": 1e-4}
    )


def test_running_statistics_approach_those_of_everything_seen() -> None:
    rng = np.random.default_rng(0)
    everything = [rng.normal(3, 2, 500).astype(np.float32) for _ in range(8)]
    ours = RunningStatistics()
    for values in everything:
        ours.update(torch.from_numpy(values))
    seen = np.concatenate(everything)
    assert float(ours.mean) == pytest.approx(seen.mean(), rel=1e-4)
    assert float(ours.var) == pytest.approx(seen.var(), rel=5e-3)


def test_effective_rank_is_one_on_a_line() -> None:
    line = torch.linspace(-1, 1, 50)[:, None] * torch.tensor([[1.0, 2.0, -3.0]]) + 5
    assert float(effective_rank(line)) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("dim", [2, 5, 16])
def test_effective_rank_is_the_dimension_for_an_isotropic_cloud(dim: int) -> None:
    cross = torch.cat([torch.eye(dim), -torch.eye(dim)]) + 7  # equal variance along every axis
    assert float(effective_rank(cross)) == pytest.approx(dim, rel=1e-4)


def test_effective_rank_is_the_exponential_of_the_spectrums_entropy() -> None:
    scales = torch.tensor([2.0, 1.0, 1.0])  # variances 4, 1, 1 → shares 2/3, 1/6, 1/6
    cross = torch.cat([torch.diag(scales), -torch.diag(scales)])
    entropy = -(2 / 3 * np.log(2 / 3) + 2 / 6 * np.log(1 / 6))
    assert float(effective_rank(cross)) == pytest.approx(np.exp(entropy), rel=1e-5)


def test_effective_rank_of_collapsed_points_is_one_and_finite() -> None:
    assert float(effective_rank(torch.ones(10, 4))) == pytest.approx(1)
