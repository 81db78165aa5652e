"""Successive halving: the number and length of its trials, and which candidates remain."""

from __future__ import annotations

import itertools

import numpy as np
from helpers import steady
from hypothesis import given, settings
from hypothesis import strategies as st
from stepped_search import SteppedSearch

from cic.learning.objectives import SkillSpace
from cic.training.searches import Problem
from cic.training.settings import SearchConfig

BOX = SkillSpace("box", 3)


def played(name: str, budget: int, copies: int = 1, **config: int) -> SteppedSearch:
    search = SteppedSearch(Problem(BOX, SearchConfig(**config), budget, 3, copies), name)  # type: ignore[arg-type]
    while search.searching:
        search.observe(np.full(copies, search.current[0], np.float32))
    return search


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


def test_the_better_half_continues() -> None:
    search = played("halving", 1000, trial_steps=20)
    tried = [(trial.candidate.steps, trial.skill[0]) for trial in search.trials]
    pools = [[skill for steps, skill in tried if steps == length] for length in (10, 20, 40, 80)]
    assert [len(pool) for pool in pools] == [16, 8, 4, 2]
    for before, after in itertools.pairwise(pools):
        assert sorted(after) == sorted(before)[-len(after) :]
    assert search.current[0] == max(pools[0])
    assert all(trial.candidate.start == 0 for trial in search.trials), "each trial starts with a reset"


def test_copies_round_the_trials_up_and_the_budget_is_kept() -> None:
    search = played("halving", 300, copies=7, trial_steps=20)
    assert sum(trial.steps for trial in search.trials) <= 300 + 6
    assert all(trial.steps % 7 == 0 for trial in search.trials)


def test_a_lucky_short_trial_does_not_win() -> None:
    """Rewards fall with time: the first, short trials look best."""
    search = SteppedSearch(Problem(BOX, SearchConfig(trial_steps=20), 400, 3), "halving")
    for step in range(10_000):
        if not search.searching:
            break
        search.observe(np.array([search.current[0] - step], np.float32))
    longest = max(trial.candidate.steps for trial in search.trials)
    assert any((search.current == trial.skill).all() for trial in search.trials if trial.candidate.steps == longest)
