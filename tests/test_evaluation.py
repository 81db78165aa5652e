"""Rollouts on an environment whose rewards and ends are known, and the measure of coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cic.envs.catalogue import Quantity
from cic.training.evaluation import BINS, Coverage, evaluate_task, rollout


class Clock:
    """Copy i counts its steps, pays 10·i + 1 per step, and ends after `lengths[i]` steps."""

    tasks = ("double",)

    def __init__(self, lengths: list[int]) -> None:
        self.lengths, self.num_envs = np.array(lengths), len(lengths)
        self.count = np.zeros(self.num_envs)
        self.resets: list[Any] = []

    def observe(self) -> np.ndarray:
        return np.stack([np.arange(self.num_envs), self.count], axis=1).astype(np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        mask = np.ones(self.num_envs, np.bool_) if options is None else options["reset_mask"]
        self.resets.append((seed, mask.tolist()))
        self.count[mask] = 0
        return self.observe(), {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        assert (self.count < self.lengths).all(), "a copy that ended must be reset before it steps again"
        self.actions = actions
        self.count += 1
        reward = 10.0 * np.arange(self.num_envs) + 1
        done = self.count >= self.lengths
        even = np.arange(self.num_envs) % 2 == 0
        return self.observe(), reward, done & even, done & ~even, {"rewards": {"double": 2 * reward}}


class Parrot:
    """Acts by repeating its skill."""

    def act(self, obs: np.ndarray, skill: np.ndarray, **_: Any) -> np.ndarray:
        assert len(obs) == len(skill)
        return skill


def test_each_copy_is_scored_for_its_first_episode_only() -> None:
    seen = rollout(Parrot(), Clock([3, 7, 5]), np.zeros(2), seed=4)  # type: ignore[arg-type]
    assert seen.lengths.tolist() == [3, 7, 5]
    np.testing.assert_allclose(seen.returns["reward"], [3 * 1, 7 * 11, 5 * 21])
    np.testing.assert_allclose(seen.returns["double"], 2 * seen.returns["reward"])
    assert seen.observations == []


def test_each_copy_follows_its_own_skill_or_all_follow_one() -> None:
    env, skills = Clock([2, 2]), np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    rollout(Parrot(), env, skills, seed=0)  # type: ignore[arg-type]
    assert (env.actions == skills).all()
    rollout(Parrot(), env, skills[1], seed=0)  # type: ignore[arg-type]
    assert (env.actions == skills[[1, 1]]).all()


def test_kept_observations_run_from_the_start_to_the_end() -> None:
    env = Clock([3, 5])
    seen = rollout(Parrot(), env, np.zeros(1), seed=[7, 8], keep=True)  # type: ignore[arg-type]
    assert [rows.shape for rows in seen.observations] == [(4, 2), (6, 2)]
    for copy, rows in enumerate(seen.observations):
        assert (rows[:, 0] == copy).all()
        assert (rows[:, 1] == np.arange(len(rows))).all()
    assert env.resets[0] == ([7, 8], [True, True])


def test_an_episode_without_an_end_is_cut() -> None:
    seen = rollout(Parrot(), Clock([10**9]), np.zeros(1), seed=0, limit=25)  # type: ignore[arg-type]
    assert seen.lengths.tolist() == [25]


def test_evaluations_repeat_with_their_seed() -> None:
    class Restless:
        def act(self, obs: np.ndarray, skill: np.ndarray, **_: Any) -> np.ndarray:
            return np.sin(31 * obs).astype(np.float32)

    name = "gridworld-reach_top_left"
    first = evaluate_task(Restless(), name, np.zeros(0), episodes=3, seed=5)  # type: ignore[arg-type]
    again = evaluate_task(Restless(), name, np.zeros(0), episodes=3, seed=5)  # type: ignore[arg-type]
    assert first.shape == (3,)
    assert (first == again).all()


# ---- coverage --------------------------------------------------------------------------------------------------

SPEC = (Quantity("a", "", (0,), -1.0, 1.0), Quantity("b", "m", (2,), 0.0, 10.0))


def rows(*points: tuple[float, float]) -> np.ndarray:
    return np.array([[x, 99.0, y] for x, y in points], np.float32)


def test_coverage_counts_distinct_cells_of_the_named_entries() -> None:
    coverage = Coverage(SPEC, 3)
    coverage.add(rows((0.01, 5.1), (0.02, 5.2), (0.01, 5.1)))
    assert coverage.cells == 1
    coverage.add(rows((-0.01, 5.1), (0.01, 4.9)))
    assert coverage.cells == 3
    coverage.add(rows((0.01, 5.1)))
    assert coverage.cells == 3
    assert coverage.fraction == pytest.approx(3 / BINS**2)


def test_coverage_of_everything_is_one() -> None:
    centres = (np.arange(BINS) + 0.5) / BINS
    coverage = Coverage(SPEC, 3)
    coverage.add(rows(*((2 * x - 1, 10 * y) for x in centres for y in centres)))
    assert coverage.fraction == 1
    assert coverage.cells == BINS**2


def test_what_lies_outside_counts_for_the_cell_at_the_edge() -> None:
    coverage = Coverage(SPEC, 3)
    coverage.add(rows((-5, -5), (-1, 0), (5, 50), (0.999, 9.99)))
    assert coverage.cells == 2


def test_three_entries_make_a_cube() -> None:
    coverage = Coverage(tuple(Quantity(name, "", (place,), 0.0, 1.0) for place, name in enumerate("abc")), 3)
    coverage.add(np.array([[0.01, 0.01, 0.01], [0.01, 0.01, 0.99], [0.99, 0.01, 0.01]], np.float32))
    assert coverage.cells == 3
    assert coverage.fraction == pytest.approx(3 / BINS**3)


def test_without_named_entries_two_fixed_directions_are_used() -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((500, 9)).astype(np.float32)
    first, second = Coverage(None, 9), Coverage(None, 9)
    first.add(points)
    second.add(points[::-1])
    assert first.features(points).shape == (500, 2)
    assert first.features(points).min() >= 0
    assert first.features(points).max() <= 1
    assert (first.visited == second.visited).all(), "the same in every process, in any order"
    assert first.cells > 50
