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
from cic.training.searches import Problem, make_search
from cic.training.searches.base import default_skill
from cic.training.settings import SearchConfig

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
        ("box", [0.5, 0.5], "`skill` has 2 numbers, but this agent's skills have dimension 3"),
        ("box", [math.nan], "finite"),
        ("onehot", [3.0], "this agent has the skills 0 to 2: there is no skill 3"),
        ("onehot", [-1.0], "there is no skill -1"),
        ("onehot", [0.5], "there is no skill 0.5"),
        ("onehot", [1.0, 1.0, 0.0], "one 1 and otherwise 0: give its index, 0 to 2"),
        ("onehot", [1.0, 0.0], "2 numbers"),
        ("sphere", [1.0, 1.0, 0.0], "have length 1, not 1.414: scale it"),
        ("sphere", [1.0], "1 numbers"),
        ("none", [1.0], "no skills: omit `skill`"),
    ],
)
def test_an_invalid_skill_is_reported(kind: Any, numbers: list[float], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        SkillSpace(kind, 0 if kind == "none" else 3).check(numbers)


# ---- what methods beyond URLB's draw from ----------------------------------------------------------------------


def test_a_cube_is_uniform_between_minus_one_and_one(draw: Draw) -> None:
    skills = draw("cube", 3)
    assert np.abs(skills).max() <= 1
    assert np.abs(skills.mean(axis=0)).max() < 0.03
    np.testing.assert_allclose(skills.var(axis=0), 1 / 3, rtol=0.05)


def test_normal_skills_have_any_length(draw: Draw) -> None:
    skills = draw("normal", 2)
    assert np.abs(skills.mean(axis=0)).max() < 0.03
    np.testing.assert_allclose(skills.var(axis=0), 1, rtol=0.05)
    assert np.linalg.norm(skills, axis=1).std() > 0.5


@pytest.mark.parametrize("by", [by_numpy, by_torch])
def test_a_sphere_may_be_wider_and_of_corners_only_the_first_drawn(by: Draw) -> None:
    wide = by(SkillSpace("sphere", 4, radius=2.0), 500, 0)
    np.testing.assert_allclose(np.linalg.norm(wide, axis=1), 2, rtol=1e-5)
    first = by(SkillSpace("onehot", 6, active=2), 500, 0)
    assert set(first.argmax(axis=1)) == {0, 1}
    assert first.shape == (500, 6)


def test_directions_of_corners_are_centred_and_others_stay() -> None:
    corners = torch.eye(5)
    centred = SkillSpace("onehot", 5).directions(corners)
    np.testing.assert_allclose(centred.sum(dim=1).numpy(), 0, atol=1e-6)
    np.testing.assert_allclose(centred.diagonal().numpy(), 1, rtol=1e-6)
    assert torch.equal(SkillSpace("sphere", 5).directions(corners), corners)


def test_the_skill_towards_a_step_is_on_the_sphere_or_the_nearest_corner() -> None:
    step = torch.tensor([[3.0, 4.0], [-1.0, -2.0]])
    np.testing.assert_allclose(SkillSpace("sphere", 2, radius=5.0).towards(step)[0].numpy(), [3, 4], rtol=1e-6)
    assert torch.equal(SkillSpace("onehot", 2).towards(step), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))


@pytest.mark.parametrize("kind", ["cube", "normal"])
def test_such_skills_are_searched_for_at_random_and_begin_on_the_first_axis(kind: str) -> None:
    space = SkillSpace(kind, 3)  # type: ignore[arg-type]
    assert make_search(Problem(space, SearchConfig(), 100), "random").searches
    with pytest.raises(UserError, match="does not fit"):
        make_search(Problem(space, SearchConfig(), 100), "grid")
    np.testing.assert_array_equal(default_skill(space), [1, 0, 0])
    np.testing.assert_array_equal(default_skill(SkillSpace("sphere", 2, radius=3.0)), [3, 0])


@pytest.mark.parametrize("drawn_by", [by_numpy, by_torch])
def test_a_share_of_a_sphere_is_sparse(drawn_by: Draw) -> None:
    skills = drawn_by(SkillSpace("sphere", 4, sparse=0.4), COUNT, 0)
    np.testing.assert_allclose(np.linalg.norm(skills, axis=1), 1, rtol=1e-5)
    used = np.count_nonzero(skills, axis=1)
    binomial = np.array([0, 1, 3, 3, 1]) / 8  # the largest entry and those of the other three that are kept
    expected = 0.4 * binomial + 0.6 * np.eye(5)[4]
    np.testing.assert_allclose(np.bincount(used, minlength=5) / COUNT, expected, atol=0.02)
    alone = skills[used == 1]
    shares = [np.mean(np.isclose(alone, sign), axis=0) for sign in (-1, 1)]
    np.testing.assert_allclose(shares, 1 / 8, atol=0.03)
