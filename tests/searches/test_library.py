"""The skill library: what it keeps, what it does not know, what it predicts, and the search that uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import steady
from hypothesis import given, settings
from hypothesis import strategies as st
from stepped_search import SteppedSearch

import cic
from cic.core.errors import UserError
from cic.core.types import Spaces
from cic.learning.objectives import SkillSpace
from cic.learning.replay import Replay
from cic.runs.folder import Run
from cic.training.library import STATES, Library, distances, from_replay, predicted_scores, recorded
from cic.training.searches import Problem, make_search
from cic.training.settings import SearchConfig

BOX = SkillSpace("box", 2)


def random_library(seed: int, count: int, states: int = 6, obs: int = 3) -> Library:
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.1, 50, obs)  # units of measurement that differ
    skills = rng.random((count, 2), np.float32)[rng.integers(count, size=count)]  # some have several paths
    return Library(skills, (rng.random((count, states, obs)) * scale).astype(np.float32))


def per_skill(library: Library, of_paths: list[float]) -> list[float]:
    """Means over the paths of each candidate, by hand."""
    paths = list(zip(library.skills, of_paths, strict=True))
    return [np.mean([value for skill, value in paths if (skill == one).all()]) for one in library.candidates]


def by_hand(library: Library, states: np.ndarray) -> np.ndarray:
    """Standardised by the library's states."""
    every = library.paths.reshape(-1, library.paths.shape[-1]).astype(np.float64)
    return (states.astype(np.float64) - every.mean(axis=0)) / every.std(axis=0)


# ---- what it knows ---------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 1000), count=st.integers(1, 9), known=st.integers(0, 30))
@settings(steady, max_examples=40)
def test_what_is_unknown_lies_far_from_starts_and_labelled_states(seed: int, count: int, known: int) -> None:
    library, rng = random_library(seed, count, states=16), np.random.default_rng(seed + 1)
    obs = (rng.random((known, 3)) * library.paths.max(axis=(0, 1))).astype(np.float32)
    places = by_hand(library, np.concatenate([library.paths[:, 0], obs[::4]]))
    expected = [
        np.mean([np.linalg.norm(places - state, axis=1).min() for state in by_hand(library, path[8::4])])
        for path in library.paths
    ]
    np.testing.assert_allclose(distances(library, obs), per_skill(library, expected), atol=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_regression_knows_where_rewards_grow(seed: int) -> None:
    """Labels on one side alone: the best skill is on the other, where no neighbour has seen such a reward."""
    library, rng = random_library(seed, 40, states=16), np.random.default_rng(seed)
    scale = library.paths.max(axis=(0, 1))
    obs = (rng.random((400, 3)) * scale).astype(np.float32)
    obs = obs[obs[:, 0] < 0.7 * scale[0]]
    scores = predicted_scores(library, obs, (obs / scale) @ np.float32([1, 0.2, 0]))
    truth = per_skill(library, (library.ends / scale @ np.float32([1, 0.2, 0])).mean(axis=1))
    np.testing.assert_allclose(scores, truth, atol=0.06)
    assert np.corrcoef(scores, truth)[0, 1] > 0.95


@pytest.mark.usefixtures("short_regressions")
def test_a_prediction_repeats_and_leaves_the_worlds_dice_alone() -> None:
    library = random_library(0, 5)
    obs, reward = library.paths[:, 0], np.arange(5, dtype=np.float32)
    torch.manual_seed(3)
    first = predicted_scores(library, obs, reward)
    drawn = torch.rand(1)
    np.testing.assert_array_equal(first, predicted_scores(library, obs, reward))
    torch.manual_seed(3)
    assert torch.rand(1) == drawn


@pytest.mark.parametrize(("scale", "shift"), [(1e-4, 0.0), (1e5, -7e5)])
def test_what_a_reward_is_measured_in_does_not_matter(scale: float, shift: float) -> None:
    library, rng = random_library(3, 20, states=16), np.random.default_rng(3)
    obs = library.paths[rng.integers(20, size=200), rng.integers(16, size=200)]
    reward = obs[:, 0] / library.paths[..., 0].max()
    plain = predicted_scores(library, obs, reward)
    np.testing.assert_allclose(
        (predicted_scores(library, obs, scale * reward + shift) - shift) / scale, plain, atol=1e-3
    )


def test_rewards_that_are_all_the_same_predict_themselves() -> None:
    library = random_library(0, 5)
    assert (predicted_scores(library, library.paths[:, 0], np.full(5, 0.1, np.float32)) == np.float32(0.1)).all()


@pytest.mark.usefixtures("short_regressions")
def test_what_is_no_number_and_what_never_changes_counts_for_nothing() -> None:
    library = random_library(0, 5)
    library.paths[..., 1] = 7.0
    obs, reward = library.paths[:, 0], np.arange(5, dtype=np.float32)
    assert np.isfinite(predicted_scores(library, obs, np.where(reward == 2, np.nan, reward))).all()
    assert (predicted_scores(library, obs, np.full(5, np.nan, np.float32)) == 0).all()
    assert np.isfinite(distances(library, obs)).all()


def test_each_skill_is_a_candidate_once() -> None:
    skills = np.float32([[0, 1], [1, 0], [0, 1], [1, 1], [0, 1]])
    library = Library(skills, np.zeros((5, 4, 3), np.float32))
    assert sorted(map(tuple, library.candidates.tolist())) == [(0, 1), (1, 0), (1, 1)]
    scores = dict(zip(map(tuple, library.candidates.tolist()), library.per_skill(np.arange(5.0)), strict=True))
    assert scores == {(0, 1): 2.0, (1, 0): 1.0, (1, 1): 3.0}


# ---- from the replay -------------------------------------------------------------------------------------------


def filled(lengths: list[int], copies: int) -> Replay:
    """Each copy follows skills of these lengths, one after another in one episode; observations count the ticks."""
    replay = Replay(Spaces(2, 1), 2, 10_000, copies)
    tick = 0
    for number, length in enumerate(lengths):
        for age in range(length):
            obs = np.stack([np.arange(copies), np.full(copies, tick)], axis=1).astype(np.float32)
            skill = np.stack([np.arange(copies), np.full(copies, number)], axis=1).astype(np.float32)
            zeros = np.zeros(copies, np.float32)
            begins = np.full(copies, age == 0)
            replay.add(obs, skill, zeros[:, None], zeros, zeros > 1, skill_started=begins, task_rewards=None)
            tick += 1
    replay.finish(
        np.stack([np.arange(copies), np.full(copies, tick)], axis=1).astype(np.float32), np.ones(copies, bool)
    )
    return replay


@pytest.mark.parametrize("copies", [1, 3])
def test_the_latest_skills_that_acted_long_enough_are_kept(copies: int) -> None:
    lengths = [70, 130, 40, 100, 99, 120]
    found = from_replay(filled(lengths, copies), 3 * copies, 100)
    assert found is not None
    assert sorted({int(number) for _, number in found.skills}, reverse=True) == [5, 3, 1]
    assert len(found.skills) == 3 * copies
    assert found.paths.shape == (3 * copies, STATES, 2)
    begins = np.cumsum([0, *lengths])
    for (copy, number), path in zip(found.skills, found.paths, strict=True):
        assert (path[:, 0] == copy).all()
        assert path[0, 1] == begins[int(number)]
        assert path[-1, 1] == begins[int(number)] + 100
        assert (np.diff(path[:, 1]) > 0).all()
    latest = from_replay(filled(lengths, copies), copies, 100)
    assert latest is not None
    assert {int(number) for _, number in latest.skills} == {5}


def test_episodes_that_are_shorter_than_the_paths_of_the_library_are_kept_whole() -> None:
    found = from_replay(filled([5, 30, 30, 7], 1), 10, 100)
    assert found is not None
    assert [int(number) for _, number in found.skills] == [2, 1]
    assert found.paths[0, -1, 1] - found.paths[0, 0, 1] == 30
    assert from_replay(Replay(Spaces(2, 1), 2, 100, 1), 10, 100) is None


def test_recorded_skills_have_their_longest_paths() -> None:
    """Skill 1 falls twice before its time is over, skill 2 never."""
    replay = filled([4, 30], 1)
    for number, length, ended in ((1, 8, True), (1, 20, True), (1, 2, False), (2, 30, False)):
        for age in range(length):
            obs, skill = np.float32([[0, 100 * number + age]]), np.float32([[0, 10 + number]])
            over = np.array([ended and age == length - 1])
            replay.add(obs, skill, np.zeros((1, 1), np.float32), np.zeros(1, np.float32), over,
                       skill_started=np.array([age == 0]), task_rewards=None)  # fmt: skip
            if over[0]:
                replay.finish(np.float32([[0, 100 * number + length]]), over)
    replay.finish(np.float32([[0, 230]]), np.ones(1, bool))
    found = recorded(replay, 2, 1, 30)
    assert found is not None
    assert found.skills[:, 1].tolist() == [12, 11]
    lengths = found.paths[:, -1, 1] - found.paths[:, 0, 1]
    assert lengths.tolist() == [30, 20]


@pytest.mark.parametrize("domain", ["gridworld", pytest.param("half_cheetah", marks=pytest.mark.slow)])
def test_a_domain_with_short_episodes_has_a_library(domain: str, tmp_path: Path) -> None:
    settings = {"scale": "smoke", "library": 3, "library_starts": 1, "library_steps": 250, "steps": 2_500}
    library = Run(cic.pretrain(domain, out=tmp_path / "run", quiet=True, **settings).path).library()
    assert library is not None
    assert len(np.unique(library["skills"], axis=0)) == 3


# ---- the search ------------------------------------------------------------------------------------------------


class Plane:
    """A skill (x, y) goes from the origin straight to its point and stays; a corner pays by how near it is."""

    def __init__(self, budget: int, copies: int = 1, reach: int = 20, **config: Any) -> None:
        rng = np.random.default_rng(4)
        skills = rng.random((60, 2), np.float32)
        shares = np.minimum(np.linspace(0, 2, STATES), 1)[None, :, None]
        self.obs: list[np.ndarray] = []
        self.reward: list[np.ndarray] = []
        self.at, self.copies, self.reach, self.begun = np.zeros(2), copies, reach, 0
        library = Library(skills, (shares * skills[:, None]).astype(np.float32))
        problem = Problem(BOX, SearchConfig(**config), budget, 0, copies, library, self.seen)
        self.search = SteppedSearch(problem, "library")
        best = np.argmin(((skills - self.goal) ** 2).sum(axis=1))
        self.best_skill = skills[best]

    goal = np.array([0.9, 0.15])

    def seen(self, steps: int) -> tuple[np.ndarray, np.ndarray]:
        ticks = steps // self.copies - 1
        obs, reward = np.array(self.obs[:ticks], np.float32), np.array(self.reward[:ticks], np.float32)
        return obs.reshape(-1, 2), reward.reshape(-1)

    def play(self) -> int:
        steps = 0
        while self.search.searching:
            tried = len(self.search.trials)
            self.at = self.at + (self.search.current - self.at) / self.reach
            reward = np.full(self.copies, np.exp(-4 * ((self.at - self.goal) ** 2).sum()), np.float32)
            self.obs.append(np.tile(self.at, (self.copies, 1)))
            self.reward.append(reward)
            self.search.observe(reward)
            steps += self.copies
            candidate = self.search.candidate
            if len(self.search.trials) > tried and candidate is not None and candidate.start is not None:
                self.at = np.zeros(2)
        return steps


@pytest.mark.parametrize("copies", [1, 3])
def test_the_best_skill_of_the_library_is_found_though_few_are_tried(copies: int) -> None:
    plane = Plane(960, copies, reach=20 // copies, trial_steps=60, finalists=3)
    assert plane.play() <= 960
    np.testing.assert_array_equal(plane.search.current, plane.best_skill)
    tried = [trial.steps for trial in plane.search.trials]
    assert tried == [60] * 5 + [72 if copies == 3 else 73] * 9
    finalists = np.stack([trial.skill for trial in plane.search.trials[5:]]).reshape(3, 3, 2)
    assert (finalists == finalists[:, :1]).all(), "each from three starts"
    assert not any((trial.skill == plane.best_skill).all() for trial in plane.search.trials[:5]), "it was predicted"


@pytest.mark.usefixtures("short_regressions")
def test_only_the_trials_of_finalists_start_with_a_reset() -> None:
    plane = Plane(400, trial_steps=50, finalists=2)
    plane.play()
    assert [(trial.steps, trial.candidate.start) for trial in plane.search.trials] == [
        *[(50, None)] * 2,
        *[(50, start) for _ in range(2) for start in range(3)],
    ]


def test_without_a_library_the_search_names_the_remedy() -> None:
    with pytest.raises(UserError, match="choose `search=halving`, or repeat"):
        make_search(Problem(BOX, SearchConfig(), 100), "library")
