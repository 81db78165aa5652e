"""CIC's released loss collapses with small batches. The collapse is reported, with the remedy, and nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cic import envs
from cic.core.types import Spaces
from cic.learning.objectives.cic import CIC, CICOptions
from cic.learning.optim import Adam, GradientStep
from cic.learning.replay import Replay

WALKER = Spaces(obs=24, action=6)
NAME = "contrastive collapse"
COLLAPSED = {"contrast/cosine": -0.999, "skill/accuracy": 1 / 128, "skill/chance": 1 / 128}


@pytest.fixture(scope="module")
def walker() -> Replay:
    """Random actions, a new skill every 50 steps."""
    env, rng = envs.make("walker", num_envs=8, seed=0), np.random.default_rng(0)
    replay = Replay(WALKER, 64, 20_000, env.num_envs)
    obs, _ = env.reset(seed=0)
    for step in range(400):
        if step % 50 == 0:
            skill = rng.random((env.num_envs, 64), dtype=np.float32)
        action = rng.uniform(-1, 1, (env.num_envs, WALKER.action)).astype(np.float32)
        later, reward, terminated, _, _ = env.step(action)
        replay.add(obs, skill, action, reward, terminated)
        obs = later
    env.close()
    return replay


def train(replay: Replay, batch: int, updates: int, **options: Any) -> list[dict[str, str]]:
    """The problems of every 50th update."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        objective = CIC(WALKER, 64, CICOptions(**options))
    objective.progress = 0.01
    step, rng, found = (
        GradientStep(objective.loss, Adam(objective.parameter_groups(1e-3))),
        np.random.default_rng(0),
        [],
    )
    for update in range(1, updates + 1):
        drawn = replay.sample(batch, rng)
        metrics = step(drawn)
        if update % 50 == 0:
            metrics |= objective.diagnose(drawn)
            found.append(objective.problems({name: float(value) for name, value in metrics.items()}))
    return found


def test_a_small_batch_collapses_and_is_reported(walker: Replay) -> None:
    found = train(walker, 128, 300)
    assert found[-1].keys() == {NAME}
    assert 'use loss="infonce", or batches of at least 256' in found[-1][NAME]
    assert "batches of 128 at temperature 0.5" in found[-1][NAME]


def test_infonce_does_not_collapse(walker: Replay) -> None:
    assert not any(train(walker, 128, 300, loss="infonce"))


def test_a_larger_batch_that_starts_at_the_collapse_is_not_reported(walker: Replay) -> None:
    """At 256 rows the loss leaves the collapse after some hundred updates."""
    assert not any(train(walker, 256, 150))


def problems(progress: float = 1.0, loss: Any = "released", **numbers: float) -> set[str]:
    objective = CIC(WALKER, 8, CICOptions(loss=loss))
    objective.progress = progress
    renamed = {name.replace("_", "/"): value for name, value in numbers.items()}
    return set(objective.problems(COLLAPSED | renamed))


def test_a_collapse_that_lasts_is_reported_for_every_batch() -> None:
    large = {"skill_chance": 1 / 1024, "skill_accuracy": 1 / 1024}
    assert problems(progress=0.2, **large) == set()
    assert problems(progress=0.3, **large) == {NAME}
    assert problems(progress=0.0) == {NAME}


def test_without_signs_of_a_collapse_there_is_no_problem() -> None:
    assert problems(contrast_cosine=-0.9) == set()
    assert problems(skill_accuracy=0.2) == set()
    assert problems(loss="infonce") == set()
    objective = CIC(WALKER, 8, CICOptions())
    assert objective.problems({"critic/loss": 1.0}) == {}
