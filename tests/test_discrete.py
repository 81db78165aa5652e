"""Discrete actions: the learners against NumPy, the one-hot groups, and CartPole and a grid from start to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from agent_setup import shake
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from helpers import Doubles, actor, build_objective, doubles, random_batch, relu_mlp, trunk, weights_of
from helpers import linear as numpy_linear

import cic
from cic.core.action_spaces import own_action, supported
from cic.core.errors import UserError
from cic.core.spaces import space_from_json, space_to_json
from cic.core.types import Batch, Spaces
from cic.learning import choices
from cic.learning.agent import Agent, build_agent
from cic.learning.learners import get_learner
from cic.learning.objectives import get_objective
from cic.runs.header import possible_spaces

CHOICES = (3, 2)
SPACES = Spaces(obs=3, action=5, choices=CHOICES)
GAMMA = 0.97


def make_agent(learner: str, objective: str = "ddpg", **config: Any) -> Agent:
    cls = get_objective(objective)
    settings = get_learner(learner).Config(hidden=6, batch=8, lr=1e-2, **config)
    return shake(build_agent(SPACES, objective, cls.Options(), learner, settings))


def make_batch(size: int = 8) -> Batch:
    action = torch.from_numpy(SPACES.random_actions(size, np.random.default_rng(1)))
    return random_batch(size, SPACES.obs, 1, 0)._replace(action=action, discount=torch.full((size, 1), GAMMA))


def table(weights: dict[str, Doubles], name: str, x: Doubles) -> Doubles:
    """Q-values (2, B, 5) of every choice."""
    hidden = np.maximum(numpy_linear(weights, f"{name}.hidden", trunk(weights, f"{name}.trunk", x)), 0)
    halves = np.split(hidden, 2, axis=1)
    return np.stack([numpy_linear(weights, f"{name}.heads.{head}", half) for head, half in enumerate(halves)])


def greedy(values: Doubles) -> Doubles:
    """One-hot (B, 5): a choice of three and a choice of two."""
    return np.concatenate([np.eye(3)[values[:, :3].argmax(1)], np.eye(2)[values[:, 3:].argmax(1)]], axis=1)


def softmax(logits: Doubles) -> Doubles:
    parts = [np.exp(part - part.max(axis=1, keepdims=True)) for part in (logits[:, :3], logits[:, 3:])]
    return np.concatenate([part / part.sum(axis=1, keepdims=True) for part in parts], axis=1)


def squared_errors(w: dict[str, Doubles], batch: Batch, target: Doubles) -> float:
    q = (table(w, "critic", doubles(batch.obs)) * doubles(batch.action)).sum(axis=2) / 2  # the mean of both choices
    return float(sum(((head - target) ** 2).mean() for head in q))


def test_the_loss_of_dqn_is_that_of_numpy() -> None:
    learner, batch = make_agent("dqn").learner, make_batch()
    w = weights_of(learner)
    later = doubles(batch.next_obs)
    chosen = greedy(table(w, "actor.critic", later).min(axis=0))
    next_q = ((table(w, "target", later) * chosen).sum(axis=2) / 2).min(axis=0)
    target = doubles(batch.reward)[:, 0] + GAMMA * next_q
    loss, _ = learner.critic_loss(batch)
    assert loss.item() == pytest.approx(squared_errors(w, batch, target), rel=1e-4)


def test_the_losses_of_discrete_sac_are_those_of_numpy() -> None:
    learner, batch = make_agent("sac_discrete", alpha=0.3).learner, make_batch()
    w = weights_of(learner)
    alpha = np.exp(w["log_alpha"])

    def policy(x: Doubles) -> tuple[Doubles, Doubles]:
        probabilities = softmax(actor(w, "actor", x))
        return probabilities, -(probabilities * np.log(probabilities)).sum(axis=1)

    probabilities, entropy = policy(doubles(batch.next_obs))
    next_q = ((table(w, "target", doubles(batch.next_obs)) * probabilities).sum(axis=2) / 2).min(axis=0)
    target = doubles(batch.reward)[:, 0] + GAMMA * (next_q + alpha * entropy)
    assert float(learner.critic_loss(batch)[0]) == pytest.approx(squared_errors(w, batch, target), rel=1e-4)

    probabilities, entropy = policy(doubles(batch.obs))
    q = ((table(w, "critic", doubles(batch.obs)) * probabilities).sum(axis=2) / 2).min(axis=0)
    loss, metrics = learner.actor_loss(batch)
    assert float(loss) == pytest.approx(float(-(q + alpha * entropy).mean()), rel=1e-4)
    goal = 0.5 * (np.log(3) + np.log(2))
    temperature = float(learner.temperature_loss(metrics["actor/entropy"])[0])
    assert temperature == pytest.approx(float(w["log_alpha"] * (entropy.mean() - goal)), rel=1e-4)


def test_updates_of_the_critic_alone_keep_the_policy_of_dqn() -> None:
    agent, batch = make_agent("dqn"), make_batch()
    before = agent.act(batch.obs.numpy())
    for _ in range(20):
        agent.update(batch, intrinsic=False, actor=False)
    np.testing.assert_array_equal(agent.act(batch.obs.numpy()), before)
    agent.update(batch, intrinsic=False)
    own, copied = agent.learner.critic.state_dict(), agent.learner.actor.critic.state_dict()
    assert all(torch.equal(own[name], value) for name, value in copied.items())


def test_exploration_follows_the_stated_probabilities() -> None:
    obs = np.tile(np.ones(SPACES.obs, np.float32), (20_000, 1))
    agent = make_agent("dqn", epsilon=0.3)
    chosen = agent.act(obs[:1])[0].astype(bool)
    share = agent.act(obs, explore=True).mean(axis=0)
    np.testing.assert_allclose(share[chosen], 0.7 + 0.3 / np.array(CHOICES), atol=0.02)
    agent = make_agent("sac_discrete")
    expected = softmax(actor(weights_of(agent.learner), "actor", obs[:1].astype(np.float64)))[0]
    np.testing.assert_allclose(agent.act(obs, explore=True).mean(axis=0), expected, atol=0.02)


@pytest.mark.parametrize("objective", ["aps", "fb"])
def test_values_of_successor_features_are_products_with_the_skill(objective: str) -> None:
    cls = get_objective(objective)
    config = get_learner("dqn").Config(hidden=6, batch=8)
    agent = shake(build_agent(SPACES, objective, cls.Options(skill_dim=4), "dqn", config))
    critic, generator = agent.learner.critic, torch.Generator().manual_seed(0)
    obs, skill = torch.randn(7, 3, generator=generator), torch.randn(7, 4, generator=generator)
    x = agent.objective.policy_input(obs, skill)
    values = critic.values(x)
    for index in range(SPACES.action):
        one = torch.eye(SPACES.action)[index].expand(7, -1)
        torch.testing.assert_close(values[..., index] / 2, critic(x, one, skill)[..., 0])


@pytest.mark.parametrize("name", ["icm", "apt"])
def test_the_inverse_model_of_discrete_actions_learns_by_cross_entropy(name: str) -> None:
    objective = get_objective(name)(SPACES, 8, get_objective(name).Options())
    batch = make_batch()
    w = weights_of(objective)
    pair = [doubles(batch.obs), doubles(batch.next_obs)]
    if name == "apt":
        pair = [trunk(w, "trunk", part) for part in pair]
    probabilities = softmax(relu_mlp(w, "inverse_model", np.concatenate(pair, axis=1)))
    expected = -(doubles(batch.action) * np.log(probabilities)).sum(axis=1).mean()
    metrics = objective.loss(batch)[1]
    assert float(metrics["representation/inverse_error"]) == pytest.approx(float(expected), rel=1e-4)
    assert build_objective(name).loss(random_batch(4, 3, 2, 0))[0].isfinite()


def test_best_and_cross_entropy_work_in_groups() -> None:
    values = torch.tensor([[1.0, 3.0, 2.0, -1.0, -2.0]])
    assert choices.best(values, CHOICES).tolist() == [[0, 1, 0, 1, 0]]
    action = torch.tensor([[0.0, 0.0, 1.0, 0.0, 1.0]])
    expected = np.log(np.exp([1, 3, 2]).sum()) - 2 + np.log(np.exp([-1, -2]).sum()) + 2
    assert float(choices.cross_entropy(values, action, CHOICES)) == pytest.approx(expected, rel=1e-6)


# ---- action spaces ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "action", "expected"),
    [
        (Discrete(3), [0, 0, 1], 2),
        (Discrete(3, start=-1), [0, 0, 1], 1),
        (MultiDiscrete([2, 3]), [0, 1, 1, 0, 0], [1, 0]),
        (MultiDiscrete([2, 3], start=[5, 0]), [0, 1, 0, 0, 1], [6, 2]),
        (MultiDiscrete([[2, 2]]), [0, 1, 1, 0], [[1, 0]]),
        (MultiBinary(2), [0, 1, 1, 0], [1, 0]),
        (Box(0, 4, (2,)), [-1, 0.5], [0, 3]),
    ],
)
def test_actions_are_converted_to_those_of_the_space(space: Any, action: list[float], expected: Any) -> None:
    converted = own_action(space, np.array(action, np.float32))
    assert space.contains(converted)
    np.testing.assert_array_equal(converted, expected)
    np.testing.assert_array_equal(own_action(space, np.array([action, action], np.float32)), [expected, expected])
    assert space_from_json(json.loads(json.dumps(space_to_json(space))), "config.json") == space


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gymnasium.spaces.Text(3), "actions must be Box, Discrete, MultiDiscrete or MultiBinary, not Text: convert"),
        (Discrete(5_000), "its discrete actions have 5,000 choices; the most are 1,000"),
        (Box(0, np.inf, (2,)), "the action space must be bounded"),
    ],
)
def test_other_action_spaces_are_refused(space: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"^env: {message}"):
        supported(space, "env")


@pytest.mark.parametrize(
    ("learner", "spaces", "message"),
    [
        ("ddpg", SPACES, r"the actions are discrete \(3 × 2 choices\): choose dqn or sac_discrete"),
        ("dqn", Spaces(3, 2), "the actions are continuous: choose .*ddpg.*, .* or td3"),
    ],
)
def test_a_learner_for_other_actions_is_refused(learner: str, spaces: Spaces, message: str) -> None:
    with pytest.raises(UserError, match=f'^learner "{learner}" cannot be used, because {message}$'):
        build_agent(spaces, "ddpg", get_objective("ddpg").Options(), learner, get_learner(learner).Config())


def test_choices_of_a_run_folder_are_checked() -> None:
    assert possible_spaces({"obs": 3, "action": 5, "choices": [3, 2]}) == SPACES
    for wrong in ([3, 3], [5, 0], [2.5, 2.5], "32", [-1, 6]):
        assert possible_spaces({"obs": 3, "action": 5, "choices": wrong}) is None


# ---- whole runs ------------------------------------------------------------------------------------------------


class Grid(gymnasium.Env[Any, Any]):
    """A 5 × 5 grid with four moves; the reward is 1 in the corner, where an episode terminates."""

    observation_space = Box(0, 4, (2,), np.float32)

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space
        self.place, self.steps = np.zeros(2), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.steps = np.zeros(2), 0
        return self.place.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        moves = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
        move = moves[action] if isinstance(self.action_space, Discrete) else 2 * np.asarray(action) - 1
        self.place, self.steps = np.clip(self.place + move, 0, 4), self.steps + 1
        end = bool((self.place == 4).all())
        return self.place.astype(np.float32), float(end), end, self.steps >= 20, {}

    def get_state(self) -> dict[str, Any]:
        return {"place": self.place.copy(), "steps": np.array(self.steps)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.place, self.steps = np.array(state["place"]), int(state["steps"])


ACTION_SPACES = {"discrete": Discrete(4), "multidiscrete": MultiDiscrete([2, 2]), "multibinary": MultiBinary(2)}


@pytest.fixture(autouse=True)
def _grids() -> None:
    for name, space in ACTION_SPACES.items():
        cic.register_env(f"test_{name}", lambda space=space: Grid(space))


@pytest.mark.parametrize("kind", ACTION_SPACES)
def test_a_run_with_discrete_actions_resumes_bit_exactly(kind: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"scale": "smoke", "checkpoint_every": 100, "milestones": (), "quiet": True}
    whole = cic.pretrain(f"test_{kind}", "diayn", steps=260, out=tmp_path / "whole", **settings)
    part = cic.pretrain(f"test_{kind}", "diayn", steps=140, out=tmp_path / "part", **settings)
    assert cic.load(whole.path).learner.discrete
    cic.resume(part.path, steps=260, quiet=True)
    assert (part.path / "metrics.jsonl").read_bytes() == (whole.path / "metrics.jsonl").read_bytes()


def test_worker_processes_step_environments_with_discrete_actions() -> None:
    env = cic.envs.make("gymnasium:CartPole-v1", num_envs=2, workers=1)
    try:
        assert env.spaces == Spaces(4, 2, (2,))
        env.reset(seed=0)
        assert np.isfinite(env.step(np.eye(2, dtype=np.float32)).obs).all()
    finally:
        env.close()


def test_the_recommended_learner_is_replaced_and_keeps_shared_settings() -> None:
    from cic.training.settings import pretrain_defaults

    config = pretrain_defaults("test_discrete", "metra", "paper")
    assert config.learner == "sac_discrete"
    assert (config.learning.nstep, config.learning.tau, config.learning.alpha) == (1, 0.005, 0.1)
    assert pretrain_defaults("test_discrete", "cic").learner == "dqn"
    assert pretrain_defaults("walker", "cic").learner == "ddpg"


def test_cartpole_is_pretrained_finetuned_and_exported(tmp_path: Path) -> None:
    name = "gymnasium:CartPole-v1"
    run = cic.pretrain(name, "diayn", scale="smoke", steps=200, out=tmp_path / "run", quiet=True)
    tuned = cic.finetune(run.path, name, steps=160, eval_every=200, out=tmp_path / "tuned", quiet=True)
    assert cic.load(tuned.path).spaces == Spaces(4, 2, (2,))
    returns = cic.evaluate(tuned.path, episodes=2).returns[name]
    assert all(value >= 1 for value in returns)
    agent = cic.load(tuned.path)
    obs = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    actions, _ = agent.predict(obs)
    np.testing.assert_array_equal(actions, agent.act(obs).argmax(axis=1))
    assert Discrete(2).contains(agent.predict(obs[0])[0])
    assert exported_actions(tuned.path, obs, "torch").tolist() == actions.tolist()


def exported_actions(run: Path, obs: Any, format: str) -> Any:
    file, _ = cic.export_policy(run, run / "policy", format)
    if format == "torch":
        return torch.export.load(file).module()(torch.from_numpy(obs)).numpy()
    runtime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    return runtime.InferenceSession(file).run(None, {"obs": obs})[0]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["torch", "onnx"])
@pytest.mark.parametrize("kind", ACTION_SPACES)
def test_exported_policies_return_the_environments_own_actions(kind: str, format: str, tmp_path: Path) -> None:
    if format == "onnx":
        pytest.importorskip("onnx", reason="the extra `export` is not installed")
    run = cic.pretrain(f"test_{kind}", "icm", scale="smoke", steps=150, out=tmp_path / "run", quiet=True)
    obs = np.random.default_rng(0).uniform(0, 4, (6, 2)).astype(np.float32)
    expected, _ = cic.load(run.path).predict(obs)
    found = exported_actions(run.path, obs, format)
    assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())


@pytest.mark.parametrize("objective", ["icm", "fb", "metra"])
@pytest.mark.slow
def test_methods_train_with_discrete_actions(objective: str, tmp_path: Path) -> None:
    run = cic.pretrain("test_multidiscrete", objective, scale="smoke", out=tmp_path / "run", quiet=True)
    assert np.isfinite(run.result["coverage/fraction"])
