"""Learners: losses and whole updates against NumPy, targets, delays, densities, exploration, settings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from agent_setup import ACTION, EDGE, OBS, SKILL, batches, make_agent, shake
from helpers import actor, weights_of
from numpy_agent import assert_updates_agree

from cic.core.errors import UserError
from cic.core.types import Spaces
from cic.learning.agent import Agent, build_agent
from cic.learning.learners import LearnerConfig, get_learner, learners
from cic.learning.learners.base import learners_for, straight_through_clamp
from cic.learning.learners.ddpg import DDPG, DDPGConfig
from cic.learning.learners.sac import SAC, SACConfig
from cic.learning.learners.td3 import TD3Config
from cic.learning.objectives import NoOptions

every_learner = pytest.mark.parametrize("learner", learners_for(()))


# ---- one whole update ------------------------------------------------------------------------------------------


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ddpg": ("ddpg", {}),
    "ddpg without noise": ("ddpg", {"noise": 0.0}),
    "ddpg with much noise": ("ddpg", {"noise": 0.6}),
    "td3": ("td3", {}),
    "td3 with much noise": ("td3", {"target_noise": 0.9, "noise_clip": 0.8, "actor_every": 1}),
    "td3 with a slow actor": ("td3", {"actor_every": 3}),
    "sac": ("sac", {}),
    "sac at a fixed temperature": ("sac", {"tune_alpha": False, "alpha": 0.5}),
    "sac towards another entropy": ("sac", {"target_entropy": 0.4, "lr": 3e-2}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_updates_are_those_of_a_plain_numpy_computation(name: str) -> None:
    """Critic, actor with the critic after its step, temperature, targets: losses, gradients and Adam."""
    learner, config = VARIANTS[name]
    agent = shake(make_agent("ddpg", learner, config=config))
    reference = assert_updates_agree(agent, batches(agent, 4), intrinsic=False)
    if "much noise" in name:
        assert reference.learner.clamped > 0, "some action must meet the bound, or the clamp was not seen"
    if learner == "td3":
        assert agent.learner.updates == reference.learner.updates == 4


@every_learner
@pytest.mark.parametrize(("moves", "rate"), [(True, 0.1), (False, 0.7)])
def test_targets_follow_faster_while_the_actor_stands_still(learner: str, moves: bool, rate: float) -> None:
    agent = shake(
        make_agent(learner=learner, config={"tau_alone": 0.7} | ({"actor_every": 1} if learner == "td3" else {}))
    )
    before = weights_of(agent.learner.target)
    agent.update(batches(agent, 1)[0], intrinsic=False, actor=moves)
    after, critic = weights_of(agent.learner.target), weights_of(agent.learner.critic)
    for name in before:
        np.testing.assert_allclose(after[name], (1 - rate) * before[name] + rate * critic[name], atol=1e-6)


@every_learner
def test_targets_start_as_what_they_follow(learner: str) -> None:
    own = make_agent(learner=learner).learner
    pairs = [(own.critic, own.target)] + ([(own.actor, own.target_actor)] if learner == "td3" else [])
    for source, target in pairs:
        for one, other in zip(source.parameters(), target.parameters(), strict=True):
            assert torch.equal(one, other)
            assert one is not other


@pytest.mark.parametrize("every", [1, 2, 3])
def test_td3_moves_actor_and_targets_every_so_many_updates_only(every: int) -> None:
    agent = shake(make_agent("ddpg", "td3", config={"actor_every": every}))
    for count, batch in enumerate(batches(agent, 6), 1):
        before = weights_of(agent)
        metrics = agent.update(batch, intrinsic=False)
        after = weights_of(agent)
        for part, always in (("actor.", 0), ("target.", 0), ("target_actor.", 0), ("critic.", 1)):
            names = [name for name in before if name.startswith(f"learner.{part}")]
            moved = any((before[name] != after[name]).any() for name in names)
            assert moved == (always or count % every == 0), (part, count)
        assert ("actor/loss" in metrics) == (count % every == 0)


def test_td3_counts_on_after_a_restore() -> None:
    first, second = make_agent("ddpg", "td3"), make_agent("ddpg", "td3")
    (batch,) = batches(first, 1)
    first.update(batch, intrinsic=False)
    second.load_state_dict(first.state_dict())
    assert "actor/loss" in second.update(batch, intrinsic=False)


def test_sac_tunes_its_temperature_towards_the_target_entropy() -> None:
    for wanted, rises in ((50.0, True), (-50.0, False)):
        agent = make_agent("ddpg", "sac", config={"target_entropy": wanted})
        for batch in batches(agent, 3):
            agent.update(batch, intrinsic=False)
        assert (float(agent.learner.log_alpha.detach().exp()) > 0.1) == rises


# ---- the squashed Gaussian -------------------------------------------------------------------------------------


def gaussian(mean: float, log_std: float, action: int = 1) -> SAC:
    """A SAC whose policy is the same squashed Gaussian everywhere."""
    agent = build_agent(Spaces(OBS, action), "ddpg", NoOptions(), "sac", SACConfig(hidden=4))
    learner = agent.learner
    assert isinstance(learner, SAC)
    last = learner.actor.head[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([mean] * action + [log_std] * action))
    return learner


def normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-0.4, 0.5), (1.5, -2.0)])
def test_the_density_is_the_slope_of_the_distribution_function(mean: float, log_std: float) -> None:
    """P(a ≤ x) = Φ((atanh x − μ) / σ), differentiated numerically; and the density integrates to 1."""
    learner, std = gaussian(mean, log_std), math.exp(log_std)
    noise = torch.linspace(-2.5, 2.5, 41)[:, None]
    action, log_density = learner._sample(torch.zeros(41, OBS), noise)
    for x, found in zip(action[:, 0].double().tolist(), log_density[:, 0].tolist(), strict=True):
        step = 1e-5 * (1 - x * x)
        above, below = (normal_cdf((math.atanh(x + side) - mean) / std) for side in (step, -step))
        assert found == pytest.approx(math.log((above - below) / (2 * step)), abs=2e-4)
    fine = torch.linspace(-7, 7, 20_001)[:, None]
    action, log_density = learner._sample(torch.zeros(20_001, OBS), fine)
    x, density = (values[:, 0].detach().double().numpy() for values in (action, log_density.exp()))
    assert ((density[1:] + density[:-1]) / 2 * np.diff(x)).sum() == pytest.approx(1, abs=2e-3)


def test_the_density_of_several_dimensions_is_their_product() -> None:
    noise = torch.tensor([[-1.0, 0.3, 2.0]])
    together = gaussian(0.2, -0.3, action=3)._sample(torch.zeros(1, OBS), noise)[1]
    alone = [gaussian(0.2, -0.3)._sample(torch.zeros(1, OBS), noise[:, i : i + 1])[1] for i in range(3)]
    assert together.shape == (1, 1)
    assert float(together.detach()) == pytest.approx(sum(float(one.detach()) for one in alone), rel=1e-5)


@pytest.mark.parametrize("raw", [-40.0, -12.0, 12.0, 40.0])
def test_the_density_is_exact_where_tanh_saturates(raw: float) -> None:
    log_density = gaussian(raw, 0.0)._sample(torch.zeros(1, OBS), torch.zeros(1, 1))[1]
    slope = math.log(4) - 2 * abs(raw) - 2 * math.log1p(math.exp(-2 * abs(raw)))  # log(1 − tanh²), in closed form
    assert float(log_density.detach()) == pytest.approx(-0.5 * math.log(2 * math.pi) - slope, rel=1e-5)


@pytest.mark.parametrize(("log_std", "std"), [(9.0, math.exp(2)), (-9.0, math.exp(-5)), (-1.0, math.exp(-1))])
def test_the_spread_is_bounded(log_std: float, std: float) -> None:
    noise = torch.full((1, 1), 0.1)
    action = gaussian(0.0, log_std)._sample(torch.zeros(1, OBS), noise)[0]
    assert float(action.detach().atanh()) == pytest.approx(0.1 * std, rel=1e-3)


# ---- acting ----------------------------------------------------------------------------------------------------


def silent(agent: Agent, mean: float = 0.0) -> Agent:
    """An actor whose mean action is `mean` everywhere; SAC's with a log deviation of −1."""
    last = agent.learner.actor.head[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.fill_(-1.0)
        last.bias[:ACTION] = float(np.arctanh(mean)) if abs(mean) < 1 else 50 * mean
    return agent


def zeros(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((count, OBS), np.float32), np.zeros((count, SKILL), np.float32)


@every_learner
def test_the_mean_action_is_the_squashed_mean(learner: str) -> None:
    agent = shake(make_agent(learner=learner))
    rng = np.random.default_rng(0)
    obs, skill = rng.standard_normal((7, OBS)).astype(np.float32), rng.random((7, SKILL), dtype=np.float32)
    seen = np.concatenate([obs, skill], axis=1).astype(np.float64)
    expected = np.tanh(actor(weights_of(agent), "learner.actor", seen)[:, :ACTION])
    np.testing.assert_allclose(agent.act(obs, skill), expected, atol=2e-6)


@pytest.mark.parametrize(("learner", "std"), [("ddpg", 0.2), ("td3", 0.2), ("sac", math.exp(-1))])
def test_exploration_adds_unclipped_gaussian_noise(learner: str, std: float) -> None:
    """To the action; with SAC before it is squashed, with the policy's own deviation."""
    agent = silent(make_agent(learner=learner), mean=0.1)
    drawn = agent.act(*zeros(20_000), explore=True).astype(np.float64)
    noise = np.arctanh(drawn) - np.arctanh(0.1) if learner == "sac" else drawn - 0.1
    count = noise.size
    assert abs(noise.mean()) < 4 * std / np.sqrt(count)
    assert noise.std() == pytest.approx(std, rel=4 / np.sqrt(2 * count))
    assert (noise**4).mean() / noise.std() ** 4 == pytest.approx(3, rel=0.05)
    assert abs(noise).max() > 3 * std, "only updates clip the noise"


@pytest.mark.parametrize("learner", ["ddpg", "td3"])
def test_without_noise_exploration_is_the_mean_action(learner: str) -> None:
    agent = shake(make_agent(learner=learner, config={"noise": 0.0}))
    assert (agent.act(*zeros(5), explore=True) == agent.act(*zeros(5))).all()


@every_learner
@pytest.mark.parametrize("explore", [False, True])
def test_actions_stay_inside_their_bound(learner: str, explore: bool) -> None:
    agent = silent(make_agent(learner=learner), mean=1.0)
    action = agent.act(*zeros(200), explore=explore)
    assert action.max() == np.float32(EDGE)
    assert (agent.act(*zeros(200), explore=True) >= -EDGE).all()


def test_ddpgs_update_noise_is_clipped() -> None:
    learner = make_agent(config={"noise": 0.2, "noise_clip": 0.3}).learner
    assert isinstance(learner, DDPG)
    noise = learner._noise(torch.zeros(20_000, ACTION), torch.Generator().manual_seed(0)).double()
    assert float(noise.abs().max()) == pytest.approx(0.3)
    assert float((noise.abs() > 0.2999).double().mean()) == pytest.approx(0.1336, abs=0.01)  # P(|N(0,1)| > 1.5)
    assert float(noise[noise.abs() < 0.2].std()) == pytest.approx(0.2 * 0.5396, rel=0.02)  # N(0,1) truncated to ±1


def test_the_bound_lets_gradients_straight_through() -> None:
    mean = torch.linspace(-1.5, 1.5, 60).reshape(30, 2).requires_grad_()
    action = straight_through_clamp(mean)
    assert float(action.detach().max()) == np.float32(EDGE) == -float(action.detach().min())
    assert torch.allclose(action, mean.clamp(-1, 1), atol=2e-6)
    weight = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    (action * weight).sum().backward()
    assert torch.equal(mean.grad, weight)


# ---- settings --------------------------------------------------------------------------------------------------


def test_the_defaults_are_the_papers() -> None:
    shared: dict[str, Any] = {"hidden": 1024, "batch": 1024, "lr": 1e-4, "gamma": 0.99, "nstep": 3, "tau": 0.01}
    assert LearnerConfig() == LearnerConfig(**shared)
    assert DDPGConfig() == DDPGConfig(**shared, noise=0.2, noise_clip=0.3)
    assert TD3Config() == TD3Config(**shared, noise=0.2, target_noise=0.2, noise_clip=0.5, actor_every=2)
    assert SACConfig() == SACConfig(**shared, alpha=0.1, tune_alpha=True, target_entropy=-1.0)


WRONG: list[tuple[str, dict[str, Any]]] = [
    *((name, {"hidden": 0}) for name in learners()),
    ("ddpg", {"batch": 1}),
    ("ddpg", {"lr": 0.0}),
    ("ddpg", {"lr": float("nan")}),
    ("ddpg", {"gamma": 1.1}),
    ("ddpg", {"nstep": 0}),
    ("ddpg", {"tau": 0.0}),
    ("ddpg", {"tau": 1.5}),
    ("ddpg", {"tau_alone": 0.0}),
    ("ddpg", {"noise": -0.1}),
    ("ddpg", {"noise_clip": -1.0}),
    ("td3", {"noise": -0.1}),
    ("td3", {"target_noise": -0.1}),
    ("td3", {"actor_every": 0}),
    ("sac", {"alpha": 0.0}),
]


@pytest.mark.parametrize(("learner", "wrong"), WRONG)
def test_settings_out_of_range_are_refused(learner: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong)).split("_")[-1]):
        get_learner(learner).Config(**wrong)


def test_a_misspelt_name_is_answered_with_the_right_one() -> None:
    with pytest.raises(UserError, match='did you mean "ddpg"'):
        get_learner("dpg")
