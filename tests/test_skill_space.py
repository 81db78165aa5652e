"""Where skills live and how they are drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from cic.learning.objectives import SkillSpace

COUNT = 20_000
Draw = Callable[..., np.ndarray]


def by_numpy(space: SkillSpace, count: int, seed: int) -> np.ndarray:
    skills = space.sample(count, np.random.default_rng(seed))
    assert skills.dtype == np.float32
    return skills


def by_torch(space: SkillSpace, count: int, seed: int) -> np.ndarray:
    skills = space.draw(count, torch.Generator().manual_seed(seed))
    assert skills.dtype == torch.float32
    return skills.numpy()


@pytest.fixture(params=[by_numpy, by_torch])
def draw(request: pytest.FixtureRequest) -> Draw:
    """One prior, drawn from while stepping and inside updates."""

    def draw(kind: str, dim: int, count: int = COUNT, seed: int = 0) -> np.ndarray:
        skills = request.param(SkillSpace(kind, dim), count, seed)  # type: ignore[arg-type]
        assert skills.shape == (count, dim)
        return skills.astype(np.float64)

    return draw


def test_box_skills_are_uniform_and_independent(draw: Draw) -> None:
    skills = draw("box", 4)
    assert skills.min() >= 0
    assert skills.max() < 1
    for column in skills.T:
        counts = np.histogram(column, bins=10, range=(0, 1))[0]
        assert abs(counts - COUNT / 10).max() < 5 * np.sqrt(COUNT / 10)
    correlation = np.corrcoef(skills.T) - np.eye(4)
    assert abs(correlation).max() < 4 / np.sqrt(COUNT)


def test_sphere_skills_are_uniform_on_the_unit_sphere(draw: Draw) -> None:
    skills = draw("sphere", 3)
    np.testing.assert_allclose(np.linalg.norm(skills, axis=1), 1, rtol=1e-5)
    assert abs(skills.mean(axis=0)).max() < 4 / np.sqrt(3 * COUNT)
    np.testing.assert_allclose(skills.T @ skills / COUNT, np.eye(3) / 3, atol=0.01)
    counts = np.histogram(skills[:, 2], bins=10, range=(-1, 1))[0]  # Archimedes: each coordinate is uniform
    assert abs(counts - COUNT / 10).max() < 5 * np.sqrt(COUNT / 10)


def test_onehot_skills_are_uniform_over_the_corners(draw: Draw) -> None:
    skills = draw("onehot", 5)
    assert set(np.unique(skills)) == {0, 1}
    assert (skills.sum(axis=1) == 1).all()
    assert abs(skills.sum(axis=0) - COUNT / 5).max() < 5 * np.sqrt(COUNT / 5)


def test_no_skills_are_empty_rows(draw: Draw) -> None:
    assert draw("none", 0, count=7).shape == (7, 0)


@pytest.mark.parametrize("kind", ["box", "sphere", "onehot"])
def test_the_generator_alone_decides(draw: Draw, kind: str) -> None:
    assert (draw(kind, 6, 50, seed=3) == draw(kind, 6, 50, seed=3)).all()
    assert (draw(kind, 6, 50, seed=3) != draw(kind, 6, 50, seed=4)).any()
