"""Every search: its candidates, equal treatment of them, and the table of trials."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import steady
from hypothesis import given, settings
from hypothesis import strategies as st
from stepped_search import SteppedSearch

from cic.core.errors import UserError
from cic.learning.objectives import SkillSpace
from cic.training.searches import Problem, searches
from cic.training.searches.base import default_skill
from cic.training.settings import SearchConfig

BOX, SPHERE, ONEHOT, NONE = SkillSpace("box", 6), SkillSpace("sphere", 5), SkillSpace("onehot", 4), SkillSpace()
Score = Callable[[np.ndarray], float]


def search(space: SkillSpace, name: str, budget: int = 4000, seed: int = 0, **config: Any) -> SteppedSearch:
    num_envs = config.pop("num_envs", 1)
    return SteppedSearch(Problem(space, SearchConfig(name, **config), budget, seed, num_envs), name)


def play(running: SteppedSearch, score: Score, budget: int = 4000, num_envs: int = 1) -> list[np.ndarray]:
    """The skill that acted at each step."""
    acted = []
    for _ in range(0, budget, num_envs):
        if not running.searching:
            break
        acted.append(running.current.copy())
        running.observe(np.full(num_envs, score(running.current), np.float32))
    return acted


def quadratic(goal: float) -> Score:
    return lambda skill: -float(((skill - goal) ** 2).sum())


def skills_of(running: SteppedSearch) -> np.ndarray:
    return np.array([trial.skill for trial in running.trials])


def steps_of(running: SteppedSearch) -> list[int]:
    return [trial.steps for trial in running.trials]


# ---- each search -----------------------------------------------------------------------------------------------


def test_the_grid_tries_forty_constant_vectors_for_a_hundred_steps_each() -> None:
    running = search(BOX, "grid")
    acted = play(running, quadratic(0.62))
    assert steps_of(running) == [100] * 40
    expected = np.repeat(np.linspace(0, 1, 40)[:, None], 6, axis=1)
    np.testing.assert_allclose(skills_of(running), expected, atol=1e-6)
    np.testing.assert_array_equal(np.array(acted[::100]), skills_of(running))
    assert len(acted) == 4000
    np.testing.assert_allclose(running.current, 24 / 39, atol=1e-6)  # the grid's nearest to 0.62
    assert not running.searching


def test_random_search_keeps_the_best_of_what_it_drew() -> None:
    running = search(BOX, "random")
    play(running, quadratic(0.3))
    tried = skills_of(running)
    assert tried.shape == (40, 6)
    assert len(np.unique(tried, axis=0)) == 40
    assert tried.min() >= 0
    assert tried.max() <= 1
    np.testing.assert_array_equal(running.current, min(tried, key=lambda skill: ((skill - 0.3) ** 2).sum()))


def test_random_search_on_a_sphere_stays_on_it() -> None:
    running = search(SPHERE, "random")
    play(running, lambda skill: float(skill[0]))
    np.testing.assert_allclose(np.linalg.norm(skills_of(running), axis=1), 1, rtol=1e-5)
    assert running.current[0] == skills_of(running)[:, 0].max()


@pytest.mark.parametrize("name", ["cem", "cma"])
@pytest.mark.parametrize("dim", [2, 16])
def test_adaptive_search_improves_on_a_quadratic(name: str, dim: int) -> None:
    gains = []
    for seed in range(3):
        running = search(SkillSpace("box", dim), name, seed=seed)
        play(running, quadratic(0.8))
        tried = skills_of(running)
        assert tried.shape == (40, dim)
        assert tried.min() >= 0
        assert tried.max() <= 1
        assert steps_of(running) == [100] * 40
        loss = ((tried - 0.8) ** 2).sum(axis=1)
        gains.append(loss[-8:].mean() / loss[:8].mean())
        np.testing.assert_array_equal(running.current, tried[loss.argmin()])
    assert np.mean(gains) < 0.8, "the last candidates must be better than the first"


def test_cma_es_is_that_of_the_package() -> None:
    import cma

    rng = np.random.default_rng(5)
    options = {"bounds": [0, 1], "popsize": 8, "verbose": -9, "seed": np.nan}
    options["randn"] = lambda *shape: rng.standard_normal(shape)
    reference = cma.CMAEvolutionStrategy(np.full(6, 0.5), 0.25, options)
    expected: list[np.ndarray] = []
    for _ in range(5):
        generation = reference.ask()
        expected += generation
        reference.tell(generation, [-quadratic(0.8)(np.float32(skill)) for skill in generation])
    running = search(BOX, "cma", seed=5)
    play(running, quadratic(0.8))
    np.testing.assert_allclose(skills_of(running), expected, atol=1e-5)


@pytest.mark.parametrize(("dim", "budget"), [(4, 4000), (16, 4000), (4, 10), (7, 10), (16, 100)])
def test_every_corner_is_tried_once_and_equally_long(dim: int, budget: int) -> None:
    running = search(SkillSpace("onehot", dim), "each", budget)
    play(running, lambda skill: float(skill[dim - 2]), budget)
    np.testing.assert_array_equal(skills_of(running), np.eye(dim))
    assert steps_of(running) == [budget // dim] * dim
    np.testing.assert_array_equal(running.current, np.eye(dim)[dim - 2])


def test_fixed_tries_nothing_and_takes_the_constant() -> None:
    running = search(BOX, "fixed")
    assert not running.searching
    assert running.trials == []
    np.testing.assert_array_equal(running.current, np.full(6, 0.5))
    np.testing.assert_array_equal(search(BOX, "fixed", search_value=0.25).current, np.full(6, 0.25))


@pytest.mark.parametrize("known", [True, False])
def test_regression_acts_at_random_and_takes_what_the_method_infers(known: bool) -> None:
    inferred = np.array([0, 0, 1, 0, 0], np.float32)
    problem = Problem(SPHERE, SearchConfig(), 450, infer=lambda: inferred if known else None)
    running = SteppedSearch(problem, "regress")
    play(running, lambda skill: float(skill[1]), 450)
    assert steps_of(running) == [100] * 4 + [50]
    tried = skills_of(running)
    np.testing.assert_array_equal(running.current, inferred if known else tried[tried[:, 1].argmax()])
    assert (running.table()["chosen"] is None) == known


def test_without_skills_there_is_nothing_to_search() -> None:
    running = search(NONE, "fixed")
    assert not running.searching
    assert running.current.shape == (0,)
    assert [name for name, cls in searches().items() if "none" in cls.fits] == ["fixed"]


def test_without_a_budget_the_default_is_taken() -> None:
    running = search(BOX, "grid", budget=0)
    assert not running.searching
    np.testing.assert_array_equal(running.current, default_skill(BOX))


# ---- fairness --------------------------------------------------------------------------------------------------


@given(
    name=st.sampled_from(["grid", "random", "cem", "cma", "each"]),
    num_envs=st.integers(1, 9),
    trial_steps=st.integers(1, 60),
    dim=st.integers(2, 9),
    budget=st.integers(1, 500),
)
@settings(steady, max_examples=150)
def test_each_candidate_gets_the_same_number_of_steps(
    name: str, num_envs: int, trial_steps: int, dim: int, budget: int
) -> None:
    """However many copies act side by side, and whether or not the numbers divide the budget."""
    space = SkillSpace("onehot" if name == "each" else "box", dim)
    running = search(space, name, budget, trial_steps=trial_steps, num_envs=num_envs)
    acted = play(running, lambda skill: float(skill[0]), budget, num_envs)
    assert not running.searching
    assert len(set(steps_of(running))) == 1
    if name != "each" and trial_steps <= budget - num_envs:
        assert steps_of(running)[0] >= trial_steps
    assert len(acted) * num_envs < budget + num_envs, "the search stays inside its budget"
    assert running.table()["trials"][0]["steps"] == steps_of(running)[0]


def test_of_equal_candidates_the_first_is_kept() -> None:
    running = search(BOX, "grid")
    play(running, lambda skill: 1.0 if skill[0] > 0.5 else 0.0)
    np.testing.assert_allclose(running.current, 20 / 39, atol=1e-6)
    running = search(ONEHOT, "each")
    play(running, lambda skill: 0.0)
    np.testing.assert_array_equal(running.current, [1, 0, 0, 0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["grid", "random", "cem", "cma"])
def test_returns_that_are_no_numbers_never_win(name: str, bad: float) -> None:
    running = search(BOX, name)
    play(running, lambda skill: bad if skill[0] > 0.4 else float(skill[0]))
    assert len(running.trials) == 40
    assert np.isfinite(skills_of(running)).all(), "the search goes on with numbers"
    good = [skill[0] for skill in skills_of(running) if skill[0] <= 0.4]
    assert running.current[0] == max(good)


def test_if_no_return_is_a_number_the_default_is_kept() -> None:
    running = search(BOX, "grid")
    play(running, lambda skill: np.nan)
    np.testing.assert_array_equal(running.current, default_skill(BOX))
    table = running.table()
    assert table["chosen"] is None
    assert {row["return"] for row in table["trials"]} == {None}
    json.dumps(table, allow_nan=False)


# ---- the table of trials ---------------------------------------------------------------------------------------


def test_the_table_has_trials_and_results() -> None:
    running = search(ONEHOT, "each", 40)
    play(running, lambda skill: float(skill @ np.array([1, 4, 2, 3])), 40)
    table = json.loads(json.dumps(running.table()))
    assert table == {
        "search": "each",
        "chosen": 1,
        "skill": [0, 1, 0, 0],
        "trials": [
            {"skill": np.eye(4)[i].tolist(), "steps": 10, "return": 10.0 * total}
            for i, total in enumerate((1, 4, 2, 3))
        ],
    }


@pytest.mark.parametrize("name", ["grid", "random", "cem", "cma"])
def test_numpys_global_generator_is_left_alone(name: str) -> None:
    np.random.seed(123)  # noqa: NPY002
    before = np.random.get_state()  # noqa: NPY002
    play(search(BOX, name), quadratic(0.3))
    after = np.random.get_state()  # noqa: NPY002
    assert before[2] == after[2]
    np.testing.assert_array_equal(before[1], after[1])


@pytest.mark.parametrize("name", ["random", "cem", "cma"])
def test_the_seed_decides_the_candidates(name: str) -> None:
    tried = []
    for seed in (1, 1, 2):
        running = search(BOX, name, seed=seed)
        play(running, quadratic(0.3))
        tried.append(skills_of(running))
    assert (tried[0] == tried[1]).all()
    assert (tried[0] != tried[2]).any()


# ---- what fits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "name"),
    [(SPHERE, "grid"), (ONEHOT, "cem"), (BOX, "each"), (NONE, "grid"), (SkillSpace("box", 1), "cma")],
)
def test_searches_that_do_not_fit_are_refused(space: SkillSpace, name: str) -> None:
    with pytest.raises(UserError, match=r"choose|CMA-ES"):
        search(space, name)


def test_a_misspelt_search_is_answered_with_the_right_one() -> None:
    with pytest.raises(UserError, match='did you mean "halving"'):
        search(BOX, "halfing")


def test_trials_need_at_least_a_step() -> None:
    with pytest.raises(UserError, match="trial_steps"):
        SearchConfig(trial_steps=0)
