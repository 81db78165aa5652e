"""Successive halving, counted to the step, and the Gaussian process against its formulas."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from helpers import steady
from hypothesis import given, settings
from hypothesis import strategies as st

from cic.learning.objectives import SkillSpace
from cic.training.searches import Problem, Search, make_search
from cic.training.searches.surrogate import posterior
from cic.training.selection import SearchConfig

BOX = SkillSpace("box", 3)


def played(name: str, budget: int, copies: int = 1, **config: int) -> Search:
    search = make_search(Problem(BOX, SearchConfig(**config), budget, 3, copies), name)  # type: ignore[arg-type]
    while search.searching:
        search.observe(np.full(copies, search.current[0], np.float32))
    return search


# ---- halving ---------------------------------------------------------------------------------------------------


@given(budget=st.integers(1, 3000), half=st.integers(1, 60))
@settings(steady, max_examples=60)
def test_each_round_has_half_as_many_trials_of_twice_the_length(budget: int, half: int) -> None:
    search = played("halving", budget, trial_steps=2 * half)
    rounds = 1
    while 2 ** (rounds + 1) * (rounds + 1) * half <= budget:
        rounds += 1
    expected = [2**r * half for r in range(rounds) for _ in range(2 ** (rounds - r))]
    steps = [trial.steps for trial in search.trials]
    if 2 * half <= budget:
        assert steps == expected
        assert sum(steps) == rounds * 2**rounds * half <= budget
    else:
        assert steps == [min(half, budget)], "at least one candidate, as long as the budget lasts"


def test_the_better_half_goes_on() -> None:
    search = played("halving", 1000, trial_steps=20)
    pools = [[trial.skill[0] for trial in search.trials if trial.length == length] for length in (10, 20, 40, 80)]
    assert [len(pool) for pool in pools] == [16, 8, 4, 2]
    for before, after in itertools.pairwise(pools):
        assert sorted(after) == sorted(before)[-len(after) :]
    assert search.current[0] == max(pools[0])
    assert search.fresh, "each trial begins with an episode"


def test_copies_round_the_trials_up_and_the_budget_is_kept() -> None:
    search = played("halving", 300, copies=7, trial_steps=20)
    assert sum(trial.steps for trial in search.trials) <= 300 + 6
    assert all(trial.steps % 7 == 0 for trial in search.trials)


def test_a_lucky_short_trial_does_not_win() -> None:
    """Rewards fall with time: the first, short trials look best."""
    search = make_search(Problem(BOX, SearchConfig(trial_steps=20), 400, 3), "halving")
    for step in range(10_000):
        if not search.searching:
            break
        search.observe(np.array([search.current[0] - step], np.float32))
    longest = [trial for trial in search.trials if trial.length == max(trial.length for trial in search.trials)]
    assert any((search.current == trial.skill).all() for trial in longest)


# ---- the surrogate ---------------------------------------------------------------------------------------------


def test_the_posterior_of_one_point_is_its_formula() -> None:
    """One point: the mean is its score everywhere, the variance 1 − k²/1.2 in units of a spread of 1."""
    x, new = np.array([[0.2, 0.4]]), np.array([[0.2, 0.4], [0.7, 0.1]])
    mean, std = posterior(x, np.array([3.0]), new)
    np.testing.assert_allclose(mean, 3.0)
    kernel = np.array([1.0, math.exp(-(0.5**2 + 0.3**2))])
    np.testing.assert_allclose(std, np.sqrt(1 - kernel**2 / 1.2))


@given(y=st.tuples(st.floats(-5, 5), st.floats(-5, 5)), at=st.floats(-1, 2))
@settings(steady, max_examples=50)
def test_the_posterior_of_two_points_is_its_formula(y: tuple[float, float], at: float) -> None:
    x, scores = np.array([[0.0], [0.8]]), np.array(y)
    mean, std = posterior(x, scores, np.array([[at]]))
    length = 0.8**2  # the median of the squared distances
    k01 = math.exp(-(0.8**2) / length)
    k0, k1 = math.exp(-(at**2) / length), math.exp(-((at - 0.8) ** 2) / length)
    determinant = 1.2**2 - k01**2
    inverse = np.array([[1.2, -k01], [-k01, 1.2]]) / determinant
    k = np.array([k0, k1])
    assert mean[0] == pytest.approx(scores.mean() + k @ inverse @ (scores - scores.mean()))
    scale = abs(y[0] - y[1]) / 2 or 1.0
    assert std[0] == pytest.approx(scale * math.sqrt(max(1 - k @ inverse @ k, 0)))


def test_the_surrogate_goes_where_scores_are_high() -> None:
    search = played("surrogate", 3000, trial_steps=100)
    first, last = (np.mean([trial.skill[0] for trial in part]) for part in (search.trials[:8], search.trials[-8:]))
    assert len(search.trials) == 30
    assert last > first + 0.2
    assert search.current[0] == max(trial.skill[0] for trial in search.trials)
