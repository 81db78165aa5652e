"""Where skills live and how they are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import steady
from hypothesis import given
from hypothesis import strategies as st

from cic.core.errors import UserError
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


# ---- skills that somebody wrote down ---------------------------------------------------------------------------


@steady
@given(st.sampled_from(["box", "sphere", "onehot"]), st.integers(2, 8), st.integers(0, 2**31))
def test_every_skill_that_is_drawn_is_one(kind: Any, dim: int, seed: int) -> None:
    space = SkillSpace(kind, dim)
    skill = space.sample(1, np.random.default_rng(seed))[0]
    assert (space.check(skill.tolist()) == skill).all()


def test_one_number_stands_for_all_of_a_box_and_for_the_place_of_a_corner() -> None:
    assert SkillSpace("box", 3).check([0.25]).tolist() == [0.25] * 3
    assert SkillSpace("onehot", 4).check([3]).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("kind", "numbers", "sentence"),
    [
        ("box", [50.0], r"skills lie in \[0, 1\]: 50 does not"),
        ("box", [0.5, -0.1, 0.5], "-0.1 does not"),
        ("box", [0.5, 0.5], "--skill has 2 numbers, but this agent's skills have dimension 3"),
        ("box", [math.nan], "finite"),
        ("onehot", [3.0], "this agent has the skills 0 to 2: there is no skill 3"),
        ("onehot", [-1.0], "there is no skill -1"),
        ("onehot", [0.5], "there is no skill 0.5"),
        ("onehot", [1.0, 1.0, 0.0], "one 1 and else 0: give its place, 0 to 2"),
        ("onehot", [1.0, 0.0], "2 numbers"),
        ("sphere", [1.0, 1.0, 0.0], "have length 1, not 1.414: divide by it"),
        ("sphere", [1.0], "1 numbers"),
        ("none", [1.0], "no skills: drop --skill"),
    ],
)
def test_what_is_no_skill_is_said(kind: Any, numbers: list[float], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        SkillSpace(kind, 0 if kind == "none" else 3).check(numbers)
