"""Normalised observations: statistics against NumPy, the same features on every path, exact resume, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from agent_setup import TINY

import cic
from cic.core.types import Spaces
from cic.learning.agent import Agent, build_agent
from cic.learning.encoders import CLIP, Normaliser
from cic.learning.learners import get_learner
from cic.learning.objectives import get_objective
from cic.runs.folder import Run
from cic.training.loading import config_of, read_replay

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 16, "batch": 16, "quiet": True}
UNIT = np.array([1e4, 1e-5], np.float32)


class Scaled(gymnasium.Env[Any, Any]):
    """A point whose coordinates have very different units."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-1, 1, 2)
        return (UNIT * self.at).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.at = np.clip(self.at + 0.1 * action, -1, 1)
        return (UNIT * self.at).astype(np.float32), float(self.at[0]), False, False, {}


@pytest.fixture(scope="module", autouse=True)
def scaled() -> None:
    cic.register_env("scaled", lambda: gymnasium.wrappers.TimeLimit(Scaled(), 20))


def agent_of(run: Path) -> Agent:
    return cic.load(run)


def test_statistics_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((300, 3)) * [1e4, 1.0, 1e-6] + [5e4, 0.0, 1.0]).astype(np.float32)
    encoder = Normaliser(3)
    for part in np.split(rows, [1, 4, 100]):
        encoder.observe(torch.from_numpy(part))
    wide = rows.astype(np.float64)
    np.testing.assert_allclose(encoder.mean.numpy(), wide.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(encoder.var.numpy(), wide.var(axis=0), rtol=1e-6)
    expected = np.clip(
        (wide - wide.mean(axis=0)) / np.maximum(wide.std(axis=0), 1e-6 * np.abs(wide.mean(axis=0))), -CLIP, CLIP
    )
    np.testing.assert_allclose(encoder(torch.from_numpy(rows)).numpy(), expected, rtol=1e-4, atol=1e-4)


def test_a_constant_entry_stays_finite_and_outliers_are_clipped() -> None:
    encoder = Normaliser(2)
    encoder.observe(torch.tensor([[3.0, 0.0], [3.0, 0.0]]))
    assert encoder(torch.tensor([[3.0, 0.0]])).tolist() == [[0.0, 0.0]]
    assert encoder(torch.tensor([[1e9, -1e9]])).tolist() == [[CLIP, -CLIP]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("normalised") / "run"
    return cic.pretrain("scaled", out=out, steps=240, normalise_obs=True, skill_dim=4, **SMALL).path


def test_training_uses_the_statistics_of_its_steps(run: Path) -> None:
    """The replay holds raw observations; the statistics are those of all of them except the final ones."""
    encoder = agent_of(run).encoder
    assert isinstance(encoder, Normaliser)
    assert int(encoder.count) == 240
    replay = read_replay(Run(run), config_of(Run(run)))
    started = replay["obs"].reshape(-1, 2)[~replay["episode_end"].reshape(-1)]
    assert np.abs(started[:, 0]).max() > 1e3
    np.testing.assert_allclose(encoder.var.numpy(), started.astype(np.float64).var(axis=0), rtol=0.05)


def test_acting_normalises_and_never_changes_the_statistics(run: Path, tmp_path: Path) -> None:
    agent = agent_of(run)
    before = {name: value.clone() for name, value in agent.encoder.state_dict().items()}
    obs, skill = (UNIT * 0.3).astype(np.float32), np.full(4, 0.5, np.float32)
    plain = build_agent(agent.spaces, "cic", agent.objective.options, "ddpg", agent.learner.config)
    plain.objective, plain.learner = agent.objective, agent.learner
    features = agent.features(obs[None]).numpy()[0]
    np.testing.assert_allclose(
        features, (obs - agent.encoder.mean.numpy()) / agent.encoder.var.sqrt().numpy(), rtol=1e-4
    )
    np.testing.assert_array_equal(agent.act(obs, skill), plain.act(features, skill))
    cic.evaluate(run, episodes=2)
    path, _ = cic.export_policy(run, tmp_path / "policy", "torch")
    exported = torch.export.load(path).module()(torch.from_numpy(obs)[None], torch.from_numpy(skill)[None])
    np.testing.assert_allclose(exported[0].detach().numpy(), agent.act(obs, skill), atol=1e-6)
    after = agent.encoder.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_finetuning_keeps_the_statistics(run: Path, tmp_path: Path) -> None:
    tuned = cic.finetune(run, "scaled", out=tmp_path / "tuned", steps=150, **SMALL).path
    mine, theirs = agent_of(tuned).encoder.state_dict(), agent_of(run).encoder.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())
    scratch = cic.finetune(None, "scaled", out=tmp_path / "scratch", steps=150, normalise_obs=True, **SMALL).path
    assert int(agent_of(scratch).encoder.count) == 150
    with pytest.raises(cic.UserError, match="omit `normalise_obs`"):
        cic.finetune(run, "scaled", out=tmp_path / "wrong", normalise_obs=False, steps=150, **SMALL)


def test_an_extended_run_equals_one_that_was_planned_longer(tmp_path: Path) -> None:
    settings: dict[str, Any] = SMALL | {"normalise_obs": True, "skill_dim": 4, "checkpoint_every": 80, "milestones": ()}
    cic.pretrain("gridworld", out=tmp_path / "a", steps=160, **settings)
    cic.resume(tmp_path / "a", steps=240, quiet=True)
    cic.pretrain("gridworld", out=tmp_path / "b", steps=240, **settings)
    one, other = agent_of(tmp_path / "a").state_dict(), agent_of(tmp_path / "b").state_dict()
    assert all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("objective", ["steer", "ssn4hrl"])
def test_methods_that_use_units_refuse_it(objective: str) -> None:
    options, config = get_objective(objective).Options(), get_learner("ddpg").Config(**TINY)
    with pytest.raises(cic.UserError, match="own units: omit `normalise_obs`"):
        build_agent(Spaces(3, 2), objective, options, "ddpg", config, normalise_obs=True)


def test_without_it_nothing_changes(tmp_path: Path) -> None:
    agent = agent_of(cic.pretrain("scaled", out=tmp_path / "run", steps=120, **SMALL).path)
    assert not any(name.startswith("encoder.") for name in agent.state_dict())
