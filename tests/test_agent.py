"""The agent: how it acts, one whole update against NumPy, what it inherits and what a checkpoint carries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers import (
    Doubles,
    NumpyAdam,
    Weights,
    Welford,
    actor,
    cosines,
    critic,
    doubles,
    gradient,
    infonce_loss,
    random_batch,
    released_loss,
    released_reward,
    relu_mlp,
    transition_embedding,
    weights_of,
)
from safetensors.torch import load, save

from cic.core.errors import UserError
from cic.core.types import Batch, Spaces
from cic.learning.agent import Agent, AgentConfig, _noisy
from cic.learning.objectives import get_objective

OBS, ACTION, SKILL, BATCH, EDGE = 3, 2, 2, 4, 1 - 1e-6
TINY: dict[str, Any] = {"hidden": 5, "batch": BATCH, "lr": 1e-2, "tau": 0.1}


def make_agent(
    objective: str = "cic", *, learn: bool = True, seed: int = 0, config: dict[str, Any] | None = None, **options: Any
) -> Agent:
    if objective == "cic":
        options = {"skill_dim": SKILL, "knn": 3, "temperature": 2.0} | options
    return Agent(
        Spaces(OBS, ACTION),
        objective,
        get_objective(objective).Options(**options),
        AgentConfig(**(TINY | (config or {}))),
        seed=seed,
        learn_objective=learn,
    )


def shake(agent: Agent, scale: float = 0.4, seed: int = 9) -> Agent:
    """Biases and gains off their initial values, and a target that differs from the critic."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in agent.parameters():
            value += scale * torch.randn(value.shape, generator=noise)
    return agent


def batches(agent: Agent, count: int, seed: int = 0) -> list[Batch]:
    return [random_batch(BATCH, OBS, ACTION, agent.objective.skill.dim, seed + i) for i in range(count)]


def same(first: Agent, second: Agent) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# ---- one whole update ------------------------------------------------------------------------------------------


class NumpyAgent:
    """Algorithm and order of one update in plain NumPy; gradients by central differences."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.config = agent, agent.config
        self.w = weights_of(agent)
        self.options = agent.objective.options
        self.statistic = Welford()
        self.adam = {name: NumpyAdam(self.config.lr) for name in ("objective", "critic", "actor")}
        self.generator = torch.Generator()
        self.clamped = 0

    def objective_weights(self) -> Weights:
        """The same arrays under the objective's own names."""
        return {name.removeprefix("objective."): value for name, value in self.w.items() if name.startswith("obj")}

    def see(self, obs: torch.Tensor, skill: torch.Tensor) -> Doubles:
        if not getattr(self.options, "encode_policy", False):
            return np.concatenate([doubles(obs), doubles(skill)], axis=1)
        own = self.objective_weights()
        return np.concatenate(
            [relu_mlp(own, "state", doubles(obs)), relu_mlp(own, "discriminator.skill", doubles(skill))], axis=1
        )

    def noisy(self, mean: Doubles) -> Doubles:
        draw = torch.randn(mean.shape, generator=self.generator).double().numpy()
        noise = np.clip(self.config.noise * draw, -self.config.noise_clip, self.config.noise_clip)
        self.clamped += int((abs(mean + noise) > EDGE).sum())
        return np.clip(mean + noise, -EDGE, EDGE)

    def update(self, batch: Batch) -> dict[str, float]:
        self.generator.set_state(self.agent.generator.get_state())
        numbers: dict[str, float] = {}
        reward = doubles(batch.reward)
        if self.agent.learn_objective:
            if self.options.representation:
                contrast = {"released": released_loss, "infonce": infonce_loss}[self.options.loss]

                def representation_loss(_: Weights) -> float:
                    return contrast(cosines(self.objective_weights(), batch), self.options.temperature)

                numbers["representation/loss"] = representation_loss(self.w)
                slopes = gradient(representation_loss, self.w, ("objective.state", "objective.discriminator"))
                self.adam["objective"].step(self.w, slopes)
            reward = self.intrinsic(batch)
        seen, seen_next = self.see(batch.obs, batch.skill), self.see(batch.next_obs, batch.skill)

        next_action = self.noisy(actor(self.w, "actor", seen_next))
        goal = reward + doubles(batch.discount) * critic(self.w, "target", seen_next, next_action).min(axis=0)

        def critic_loss(w: Weights) -> float:
            q = critic(w, "critic", seen, doubles(batch.action))
            return float(((q[0] - goal) ** 2).mean() + ((q[1] - goal) ** 2).mean())

        numbers["critic/loss"] = critic_loss(self.w)
        self.adam["critic"].step(self.w, gradient(critic_loss, self.w, ("critic.",)))

        mean = actor(self.w, "actor", seen)
        offset = self.noisy(mean) - mean  # held fixed: both the noise and the clamp pass gradients straight through

        def actor_loss(w: Weights) -> float:
            q = critic(w, "critic", seen, actor(w, "actor", seen) + offset)  # the critic after its step
            return float(-q.min(axis=0).mean())

        numbers["actor/loss"] = actor_loss(self.w)
        self.adam["actor"].step(self.w, gradient(actor_loss, self.w, ("actor.",)))

        for name in [n for n in self.w if n.startswith("critic.")]:
            target = name.replace("critic.", "target.", 1)
            self.w[target] = (1 - self.config.tau) * self.w[target] + self.config.tau * self.w[name]
        numbers["reward/intrinsic" if self.agent.learn_objective else "reward/task"] = float(reward.mean())
        return numbers

    def intrinsic(self, batch: Batch) -> Doubles:
        own = self.objective_weights()
        if self.options.particles == "transition":
            points = transition_embedding(own, batch)
        else:
            points = relu_mlp(own, "state", doubles(batch.next_obs))
        return released_reward(points, self.options.knn, self.statistic, self.options.normaliser)


VARIANTS: dict[str, dict[str, Any]] = {
    "released": {},
    "infonce, transitions, encoded policy": {
        "loss": "infonce",
        "particles": "transition",
        "encode_policy": True,
        "normaliser": "std",
    },
    "without representation learning": {"representation": False},
    "without noise": {"config": {"noise": 0.0}},
    "clipped noise": {"config": {"noise": 0.6}},
    "finetuning": {"learn": False},
    "scratch": {"objective": "ddpg", "learn": False},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_updates_are_those_of_a_plain_numpy_computation(name: str) -> None:
    """Representation, intrinsic reward after it, critic, actor with the critic after its step, target; with Adam."""
    agent = shake(make_agent(**VARIANTS[name]))
    reference = NumpyAgent(agent)
    for batch in batches(agent, 3):
        expected = reference.update(batch)
        metrics = agent.update(batch)
        for metric, value in expected.items():
            assert float(metrics[metric]) == pytest.approx(value, rel=2e-4, abs=2e-5), metric
        for weight, value in weights_of(agent).items():
            if "statistics" not in weight:
                np.testing.assert_allclose(value, reference.w[weight], rtol=1e-4, atol=3e-5, err_msg=weight)
    if name == "clipped noise":
        assert reference.clamped > 0, "some action must meet the bound, or the straight-through clamp was not seen"


def test_target_starts_as_the_critic() -> None:
    agent = make_agent()
    critic_state, target_state = agent.critic.state_dict(), agent.target.state_dict()
    assert all(torch.equal(critic_state[name], target_state[name]) for name in critic_state)


def test_critic_weights_get_no_gradient_in_the_actor_step() -> None:
    agent = make_agent()
    calls: dict[str, int] = {}
    for name, value in agent.named_parameters():
        if value.requires_grad:
            value.register_hook(lambda _, name=name: calls.__setitem__(name, calls.get(name, 0) + 1))
    agent.update(batches(agent, 1)[0])
    assert {name for name in calls if name.startswith(("critic.", "actor."))} == {
        name for name, _ in agent.named_parameters() if name.startswith(("critic.", "actor."))
    }
    assert set(calls.values()) == {1}, "each weight is differentiated once per update"
    assert all(value.requires_grad for value in agent.critic.parameters())


def test_target_is_never_differentiated() -> None:
    agent = make_agent()
    agent.update(batches(agent, 1)[0])
    assert all(not value.requires_grad and value.grad is None for value in agent.target.parameters())


def test_update_leaves_the_batch_alone() -> None:
    agent = make_agent()
    (batch,) = batches(agent, 1)
    before = [tensor.clone() for tensor in batch]
    agent.update(batch)
    assert all(torch.equal(a, b) for a, b in zip(before, batch, strict=True))


@pytest.mark.parametrize("learn", [True, False])
def test_metrics_are_scalar_tensors_without_gradient(learn: bool) -> None:
    agent = make_agent(learn=learn)
    metrics = agent.update(batches(agent, 1)[0])
    assert set(metrics) >= {"critic/loss", "critic/q", "critic/target", "actor/loss"}
    assert ("reward/intrinsic" in metrics) == learn
    assert ("reward/task" in metrics) != learn
    for name, value in metrics.items():
        assert isinstance(value, torch.Tensor), name
        assert value.numel() == 1, name
        assert not value.requires_grad, name


def test_finetuning_leaves_the_objective_as_it_was() -> None:
    agent = make_agent(learn=False)
    before = weights_of(agent.objective)
    for batch in batches(agent, 3):
        agent.update(batch)
    after = weights_of(agent.objective)
    assert all((before[name] == after[name]).all() for name in before)


# ---- acting ----------------------------------------------------------------------------------------------------


def silent(agent: Agent, mean: float = 0.0) -> Agent:
    """An actor whose mean action is `mean` everywhere."""
    last = agent.actor.head[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.fill_(float(np.arctanh(mean)) if abs(mean) < 1 else 50 * mean)
    return agent


def test_mean_actions_are_the_actors() -> None:
    agent = shake(make_agent())
    rng = np.random.default_rng(0)
    obs, skill = rng.standard_normal((7, OBS)).astype(np.float32), rng.random((7, SKILL), dtype=np.float32)
    expected = actor(weights_of(agent), "actor", np.concatenate([obs, skill], axis=1).astype(np.float64))
    action = agent.act(obs, skill)
    assert action.dtype == np.float32
    np.testing.assert_allclose(action, expected, atol=2e-6)
    assert (agent.act(obs, skill) == action).all(), "the mean action has no noise"


def test_one_observation_gives_one_action() -> None:
    agent = make_agent()
    obs, skill = np.ones(OBS, np.float32), np.full(SKILL, 0.5, np.float32)
    action = agent.act(obs, skill)
    assert action.shape == (ACTION,)
    np.testing.assert_allclose(agent.act(obs[None], skill[None])[0], action, atol=1e-6)
    np.testing.assert_allclose(agent.act(np.tile(obs, (3, 1)), skill), np.tile(action, (3, 1)), atol=1e-6)


def test_agents_without_skills_act_without_one() -> None:
    assert make_agent("ddpg", learn=False).act(np.ones(OBS, np.float32)).shape == (ACTION,)


def test_exploration_adds_unclipped_gaussian_noise() -> None:
    agent = silent(make_agent(), mean=0.1)
    obs, skill = np.zeros((20_000, OBS), np.float32), np.zeros((20_000, SKILL), np.float32)
    noise = agent.act(obs, skill, explore=True).astype(np.float64) - 0.1
    count = noise.size
    assert abs(noise.mean()) < 4 * 0.2 / np.sqrt(count)
    assert noise.std() == pytest.approx(0.2, rel=4 / np.sqrt(2 * count))
    assert (noise**4).mean() / noise.std() ** 4 == pytest.approx(3, rel=0.05)
    assert abs(noise).max() > 0.6, "only updates clip the noise"


@pytest.mark.parametrize("explore", [False, True])
def test_actions_stay_inside_their_bound(explore: bool) -> None:
    agent = silent(make_agent(config={"noise": 0.2}), mean=1.0)
    obs, skill = np.zeros((200, OBS), np.float32), np.zeros((200, SKILL), np.float32)
    action = agent.act(obs, skill, explore=explore)
    assert action.max() == np.float32(EDGE)
    assert (agent.act(obs, skill, explore=True) >= -EDGE).all()


def noisy(agent: Agent, mean: torch.Tensor) -> torch.Tensor:
    return _noisy(mean, agent._update_noise(mean.shape))


def test_update_noise_is_clipped_before_the_bound_is_applied() -> None:
    agent = make_agent(config={"noise": 0.2, "noise_clip": 0.3})
    middle = noisy(agent, torch.zeros(20_000, ACTION)).double()
    assert float(middle.abs().max()) == pytest.approx(0.3)
    assert float((middle.abs() > 0.2999).double().mean()) == pytest.approx(0.1336, abs=0.01)  # P(|N(0,1)| > 1.5)
    assert float(middle[middle.abs() < 0.2].std()) == pytest.approx(0.2 * 0.5396, rel=0.02)  # N(0,1) truncated to ±1
    edge = noisy(agent, torch.full((1000, ACTION), 0.99))
    assert float(edge.max()) == np.float32(EDGE)
    assert float(edge.min()) >= 0.99 - 0.3 - 1e-6


def test_the_bound_lets_gradients_straight_through() -> None:
    agent = make_agent()
    mean = torch.linspace(-1.5, 1.5, 60).reshape(30, 2).requires_grad_()
    action = noisy(agent, mean)
    assert (action.detach().abs() == np.float32(EDGE)).any()
    weight = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    (action * weight).sum().backward()
    assert torch.equal(mean.grad, weight)


@pytest.mark.parametrize(
    ("obs", "skill", "word"),
    [((5, OBS + 1), (5, SKILL), "observes"), ((5, OBS), (5, SKILL + 1), "dimension"), ((5, OBS), None, "dimension")],
)
def test_inputs_of_the_wrong_width_are_refused(obs: Any, skill: Any, word: str) -> None:
    agent = make_agent()
    with pytest.raises(UserError, match=word):
        agent.act(np.zeros(obs, np.float32), None if skill is None else np.zeros(skill, np.float32))


# ---- seeds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"reward": "uncertainty"}, {"encode_policy": True}])
def test_the_same_seed_gives_the_same_bits(options: dict[str, Any]) -> None:
    first, second = make_agent(seed=3, **options), make_agent(seed=3, **options)
    obs, skill = np.ones((4, OBS), np.float32), np.ones((4, SKILL), np.float32)
    for batch in batches(first, 4):
        assert (first.act(obs, skill, explore=True) == second.act(obs, skill, explore=True)).all()
        first.update(batch)
        second.update(batch)
    assert same(first, second)
    assert not same(first, make_agent(seed=4, **options))


def test_torchs_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    agent = make_agent(reward="uncertainty")
    agent.act(np.ones((4, OBS), np.float32), np.ones((4, SKILL), np.float32), explore=True)
    agent.update(batches(agent, 1)[0])
    assert torch.equal(torch.get_rng_state(), before)


# ---- weights from elsewhere ------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", ["trunk", "all", "none"])
def test_inherits_actor_objective_and_as_much_of_the_critic_as_asked(taken: Any) -> None:
    source, agent = shake(make_agent(seed=1)), make_agent(seed=2, learn=False)
    source.objective.reward(batches(source, 1)[0])  # so that its statistics are not the initial ones
    fresh = weights_of(agent)
    agent.inherit(source, taken)
    got, theirs = weights_of(agent), weights_of(source)
    for name in got:
        if name.startswith(("actor.", "objective.")):
            origin = theirs[name]
        elif name.startswith("target."):
            origin = got[name.replace("target.", "critic.", 1)]
        else:
            origin = (theirs if taken == "all" or (taken == "trunk" and ".trunk." in name) else fresh)[name]
        assert (got[name] == origin).all(), name
    assert any(".trunk." in name for name in got)


def test_what_was_inherited_is_a_copy() -> None:
    source, agent = make_agent(seed=1), make_agent(seed=2, learn=False)
    agent.inherit(source, "all")
    before = weights_of(source)
    agent.update(batches(agent, 1)[0])
    assert all((before[name] == value).all() for name, value in weights_of(source).items())


# ---- checkpoints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("done", [0, 3])
@pytest.mark.parametrize("learn", [True, False])
def test_an_agent_rebuilt_from_its_state_continues_to_the_bit(learn: bool, done: int) -> None:
    first = make_agent(seed=1, learn=learn)
    todo = batches(first, done + 3)
    for batch in todo[:done]:
        first.update(batch)
    weights, optimisers = load(save(first.state_dict())), load(save(first.optimiser_state()))
    second = make_agent(seed=2, learn=learn)
    second.load_state_dict(weights)
    second.load_optimiser_state(optimisers)
    obs, skill = np.ones((4, OBS), np.float32), np.ones((4, SKILL), np.float32)
    for batch in todo[done:]:
        first.update(batch)
        second.update(batch)
        assert (first.act(obs, skill, explore=True) == second.act(obs, skill, explore=True)).all()
    assert same(first, second)
    after, again = first.optimiser_state(), second.optimiser_state()
    assert after.keys() == again.keys()
    assert all(torch.equal(after[name], again[name]) for name in after)


def test_optimiser_state_holds_moments_of_every_learner() -> None:
    agent = make_agent()
    owners = {name.split(".")[0] for name in agent.optimiser_state()}
    assert owners == {"generator", "actor", "critic", "objective"}


# ---- settings --------------------------------------------------------------------------------------------------


def test_the_defaults_are_the_papers() -> None:
    assert AgentConfig() == AgentConfig(
        hidden=1024, batch=1024, lr=1e-4, gamma=0.99, nstep=3, tau=0.01, noise=0.2, noise_clip=0.3
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden": 0},
        {"batch": 1},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"gamma": 1.1},
        {"nstep": 0},
        {"tau": 0.0},
        {"tau": 1.5},
        {"noise": -0.1},
        {"noise_clip": -1.0},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        AgentConfig(**wrong)
