"""How much a skill matters: shares that are known, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fakes import make_loop, pretrain_config
from helpers import steady
from hypothesis import given, settings
from hypothesis import strategies as st

from cic.core.types import Spaces
from cic.learning.agent import build_agent
from cic.learning.learners import get_learner
from cic.learning.objectives import get_objective
from cic.training.skill_variance import BEHAVIOUR, Diagnosis, Share, diagnose, explained, share_of


def drawn(share: float, skills: int, starts: int, dim: int = 1, seed: int = 0) -> np.ndarray:
    """Values of unit variance, of which the skill has this share."""
    rng = np.random.default_rng(seed)
    own = rng.standard_normal((skills, 1, dim)) * np.sqrt(share)
    return own + rng.standard_normal((skills, starts, dim)) * np.sqrt(1 - share)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("dim", [1, 5])
def test_the_share_is_found(share: float, dim: int) -> None:
    assert explained(drawn(share, 4000, 3, dim)) == pytest.approx(share, abs=0.03)


def test_it_is_the_intraclass_correlation() -> None:
    """The example of Shrout and Fleiss (1979): six targets, four judges, ICC(1,1) = 0.17."""
    ratings = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    assert explained(np.array(ratings, float)[..., None]) == pytest.approx(0.166, abs=0.001)


@pytest.mark.parametrize("share", [0.2, 0.6, 0.9])
def test_the_interval_covers_the_truth_about_nine_times_in_ten(share: float) -> None:
    inside = 0
    for seed in range(60):
        found = share_of(drawn(share, 40, 3, seed=seed), seed, resamples=100)
        assert found.low <= found.value <= found.high
        inside += found.low <= share <= found.high
    assert inside >= 45


@given(seed=st.integers(0, 100), scale=st.floats(0.01, 100), shift=st.floats(-50, 50))
@settings(steady, max_examples=30)
def test_units_do_not_matter(seed: int, scale: float, shift: float) -> None:
    values = drawn(0.5, 12, 3, seed=seed)
    assert explained(values * scale + shift) == pytest.approx(explained(values), abs=1e-9)


def test_where_nothing_varies_nothing_is_explained() -> None:
    assert share_of(np.ones((5, 3, 2))) == Share(0.0, 0.0, 0.0)


# ---- of an agent -----------------------------------------------------------------------------------------------


class Going:
    """A policy that goes where its skill says, or everywhere the same."""

    def __init__(self, listens: bool) -> None:
        config = get_learner("ddpg").Config(hidden=4)
        self.objective = build_agent(Spaces(2, 2), "cic", get_objective("cic").Options(), "ddpg", config).objective
        self.listens = listens

    def act(self, obs: np.ndarray, skill: np.ndarray) -> np.ndarray:
        return np.sign(skill[:, :2] - 0.5) if self.listens else np.full((len(obs), 2), 0.3, np.float32)


@pytest.mark.parametrize("listens", [True, False])
def test_skills_that_lead_somewhere_explain_what_comes_of_it(listens: bool) -> None:
    skills = np.random.default_rng(0).random((16, 64), np.float32)
    found = diagnose(Going(listens), "gridworld", skills, starts=3, seed=0)  # type: ignore[arg-type]
    assert (found.skills, found.starts) == (16, 3)
    assert set(found.shares) == {BEHAVIOUR, *found.best}
    assert found.shares[BEHAVIOUR].value > 0.9 if listens else found.shares[BEHAVIOUR].value == 0
    assert set(found.best.values()) == {0.0}, "no corner's cell is met"
    assert ("a short skill search" if listens else "do not differ") in found.sentence


@pytest.mark.parametrize(
    ("task", "behaviour", "said"),
    [(0.05, 0.05, "do not differ"), (0.1, 0.6, "a short skill search"), (0.5, 0.5, "varies"), (0.9, 0.9, "strongly")],
)
def test_the_sentence_names_the_remedy(task: float, behaviour: float, said: str) -> None:
    shares = {BEHAVIOUR: Share(behaviour, behaviour, behaviour), "run": Share(task, task, task)}
    assert said in Diagnosis(shares, {"run": 1.0}, {"run": 2.0}, 8, 3).sentence


def test_pretraining_logs_it_at_milestones_and_nothing_else_changes(tmp_path: Path) -> None:
    seen = []
    for skills in (0, 5):
        path = tmp_path / str(skills)
        make_loop(path, "pretrain", pretrain_config(steps=120, milestones=(60, 120), diagnosed=skills)).train()
        seen.append([json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()])
    told = [line for line in seen[1] if "skill/explains_behaviour" in line]
    assert [line["step"] for line in told] == [60, 120]
    assert all(0 <= value <= 1 for line in told for name, value in line.items() if name.startswith("skill/explains"))
    assert [line for line in seen[1] if line not in told] == seen[0]
