"""Objectives that need more than a plain batch: one small method for each need, with its numbers checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agent_setup import ACTION, BATCH, OBS, TINY, batches
from helpers import NumpyAdam, Weights, actor, critic, doubles, gradient, weights_of
from torch import Tensor, nn

import cic
from cic import api, envs
from cic.core.config import to_dict
from cic.core.types import Batch, Metrics, Needs, Spaces
from cic.learning.agent import Agent
from cic.learning.encoders import Identity
from cic.learning.learners import get_learner
from cic.learning.learners.base import learners_for
from cic.learning.learners.ddpg import DDPGConfig
from cic.learning.networks import Critic
from cic.learning.objectives import NoOptions, Objective, SkillSpace, base, register
from cic.runs.folder import Run
from cic.training.loop import Loop
from cic.training.pretraining import pretrain
from cic.training.settings import override, pretrain_defaults

every_learner = pytest.mark.parametrize("learner", learners_for(()))


def agent_of(cls: type[Objective], learner: str = "ddpg", seed: int = 0, config: Any = None) -> Agent:
    config = config or get_learner(learner).Config(**TINY)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        objective = cls(Spaces(OBS, ACTION), config.hidden, NoOptions())
        parts = get_learner(learner).build(config, objective.policy_input_dim, ACTION, objective.make_critic)
    return Agent(Spaces(OBS, ACTION), Identity(OBS), objective, parts, seed=seed)


class TaskReward(Objective):
    """Skills as wide as an observation; learns nothing."""

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace("box", OBS)

    def reward(self, batch: Batch) -> Tensor:
        return batch.reward


def assert_learner_saw(agent: Agent, twin: Agent, batch: Batch) -> None:
    """The learner's part of the agent's latest update is what `twin` makes of `batch`, to the bit."""
    twin.update(batch, intrinsic=False)
    own, other = agent.learner.state_dict(), twin.learner.state_dict()
    assert all(torch.equal(value, other[name]) for name, value in own.items())


# ---- extras in the reward --------------------------------------------------------------------------------------


class Travel(TaskReward):
    """Pays for the way from where the skill began, and for the path's length; nothing where the skill is over."""

    @property
    def needs(self) -> Needs:
        return Needs(skill_start=True, path=3)

    def reward(self, batch: Batch) -> Tensor:
        way = (batch.next_obs - batch.extras["first_obs"]).norm(dim=1, keepdim=True)
        length = batch.extras["path"].diff(dim=1).norm(dim=2).sum(dim=1, keepdim=True)
        return (way + length) * (1 - batch.extras["skill_end"])


@every_learner
def test_the_learner_is_rewarded_by_a_reward_of_extras(learner: str) -> None:
    agent, twin = agent_of(Travel, learner), agent_of(TaskReward, learner)
    (batch,) = batches(agent, 1)
    first, path = batch.obs - 1, torch.stack([batch.obs - 1, batch.obs, batch.next_obs], dim=1)
    over = torch.tensor([[0.0], [1.0], [0.0], [0.0]])
    metrics = agent.update(batch.with_extras(first_obs=first, path=path, skill_end=over), intrinsic=True)
    rewards = []
    for row in range(BATCH):
        here, there = doubles(batch.obs[row]), doubles(batch.next_obs[row])
        way = np.sqrt(((there - here + 1) ** 2).sum())
        length = np.sqrt(OBS) + np.sqrt(((there - here) ** 2).sum())
        rewards.append([0.0 if row == 1 else way + length])
    assert float(metrics["reward/intrinsic"]) == pytest.approx(np.mean(rewards), rel=1e-5)
    paid = Travel(Spaces(OBS, ACTION), 5, NoOptions()).reward(
        batch.with_extras(first_obs=first, path=path, skill_end=over)
    )
    np.testing.assert_allclose(doubles(paid), rewards, rtol=1e-5)
    assert_learner_saw(agent, twin, batch._replace(reward=paid))


# ---- relabelling and the prior ---------------------------------------------------------------------------------


class Reach(TaskReward):
    """Relabels the skill with a goal of the same episode, as hindsight does; pays for being near it."""

    @property
    def needs(self) -> Needs:
        return Needs(goals=0.2)

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        return batch._replace(skill=batch.extras["goal"])

    def reward(self, batch: Batch) -> Tensor:
        return -(batch.next_obs - batch.skill).norm(dim=1, keepdim=True)


@every_learner
def test_skills_can_be_relabelled_inside_the_update(learner: str) -> None:
    agent, twin = agent_of(Reach, learner), agent_of(TaskReward, learner)
    (batch,) = batches(agent, 1)
    goal = batch.next_obs + 0.5
    agent.update(batch.with_extras(goal=goal, random_goal=goal), intrinsic=True)
    reward = torch.full((BATCH, 1), -0.5 * OBS**0.5)
    own, twin_batch = agent.learner.state_dict(), batch._replace(skill=goal, reward=reward)
    twin.update(twin_batch, intrinsic=False)
    for name, value in twin.learner.state_dict().items():
        torch.testing.assert_close(own[name], value, rtol=1e-5, atol=1e-6)
    assert not torch.equal(batch.skill, goal), "the batch itself is left as it was"


class Contrast(TaskReward):
    """Compares with skills from the prior, drawn anew in each update."""

    def __init__(self, spaces: Spaces, hidden: int, options: Any) -> None:
        super().__init__(spaces, hidden, options)
        self.weight = nn.Parameter(torch.ones(()))
        self.seen: list[Tensor] = []

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        return batch.with_extras(other=self.skills.draw(len(batch.obs), generator))

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        self.seen.append(batch.extras["other"])
        loss = (self.weight * (batch.skill - batch.extras["other"])).square().mean()
        return loss, {"representation/loss": loss.detach()}


def test_skills_from_the_prior_come_from_the_agents_generator() -> None:
    agent = agent_of(Contrast)
    expected = torch.Generator()
    for batch in batches(agent, 3):
        expected.set_state(agent.generator.get_state())
        metrics = agent.update(batch, intrinsic=True)
        other = SkillSpace("box", OBS).draw(BATCH, expected)
        assert isinstance(agent.objective, Contrast)
        assert torch.equal(agent.objective.seen[-1], other)
        assert float(metrics["representation/loss"]) > 0
    assert len({tuple(drawn.flatten().tolist()) for drawn in agent.objective.seen}) == 3


# ---- several batches -------------------------------------------------------------------------------------------


class Patient(TaskReward):
    """Learns from three batches per update: w follows their means; pays w."""

    def __init__(self, spaces: Spaces, hidden: int, options: Any) -> None:
        super().__init__(spaces, hidden, options)
        self.w = nn.Parameter(torch.zeros(()))
        self.steps = 0

    @property
    def needs(self) -> Needs:
        return Needs(batches=3)

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        loss = (self.w - batch.obs.mean()).square()
        return loss, {"representation/loss": loss.detach()}

    def after_step(self) -> None:
        self.steps += 1

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        return self.w + batch.obs[:, :1]


def test_the_representation_learns_from_each_batch_and_the_policy_from_the_last() -> None:
    agent, twin = agent_of(Patient), agent_of(TaskReward)
    three = batches(agent, 3)
    metrics = agent.update(*three, intrinsic=True)
    formula, expected = NumpyAdam(TINY["lr"]), {"w": np.zeros(())}
    for batch in three:
        slope = 2 * (expected["w"] - doubles(batch.obs).mean())
        formula.step(expected, {"w": slope})
    assert isinstance(agent.objective, Patient)
    assert float(agent.objective.w.detach()) == pytest.approx(float(expected["w"]), rel=1e-5)
    assert agent.objective.steps == 3
    reward = agent.objective.w.detach() + three[-1].obs[:, :1]
    assert float(metrics["reward/intrinsic"]) == pytest.approx(float(reward.mean()), rel=1e-6)
    assert_learner_saw(agent, twin, three[-1]._replace(reward=reward))


# ---- a critic of its own ---------------------------------------------------------------------------------------

FEATURES = 3


class FeatureCritic(Critic):
    """ψ by its own rule: r is a vector of features, the bootstrap is the mean of both target heads; Q = z · ψ."""

    def forward(self, x: Tensor, action: Tensor, skill: Tensor) -> Tensor:
        return (self.features(x, action) * skill).sum(dim=-1, keepdim=True)

    def td_loss(
        self, target: Critic, batch: Batch, next_action: Tensor, bonus: Tensor | float
    ) -> tuple[Tensor, Metrics]:
        with torch.no_grad():
            goal = batch.reward + batch.discount * target.features(batch.next_obs, next_action).mean(dim=0)  # (B, D)
        loss = (self.features(batch.obs, batch.action) - goal).square().sum(dim=(0, 2)).mean()
        return loss, {"critic/loss": loss.detach()}


class Features(Objective):
    """Pays in features (B, D): the steps of the observation."""

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace("sphere", FEATURES)

    def make_critic(self) -> Critic:
        return FeatureCritic(self.policy_input_dim, self.spaces.action, self.hidden, out=FEATURES)

    def reward(self, batch: Batch) -> Tensor:
        return batch.next_obs - batch.obs


def test_a_critic_may_learn_features_by_its_own_rule() -> None:
    config = DDPGConfig(**TINY, noise=0.0)
    agent = agent_of(Features, config=config)
    noise = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for value in agent.parameters():
            value += 0.4 * torch.randn(value.shape, generator=noise)
    w, adam = weights_of(agent), {name: NumpyAdam(config.lr) for name in ("critic", "actor")}
    for batch in batches(agent, 3):
        skill, action = doubles(batch.skill), doubles(batch.action)
        seen = np.concatenate([doubles(batch.obs), skill], axis=1)
        later = np.concatenate([doubles(batch.next_obs), skill], axis=1)
        psi = critic(w, "learner.target", later, np.tanh(actor(w, "learner.actor", later))).mean(axis=0)
        goal = doubles(batch.next_obs) - doubles(batch.obs) + doubles(batch.discount) * psi

        def critic_loss(w: Weights, seen=seen, goal=goal, action=action) -> float:
            heads = critic(w, "learner.critic", seen, action)
            return float(sum(((head - goal) ** 2).sum(axis=1).mean() for head in heads))

        def actor_loss(w: Weights, seen=seen, skill=skill) -> float:
            heads = critic(w, "learner.critic", seen, np.tanh(actor(w, "learner.actor", seen)))
            return float(-(heads * skill).sum(axis=2).min(axis=0).mean())

        expected = {"critic/loss": critic_loss(w)}
        adam["critic"].step(w, gradient(critic_loss, w, ("learner.critic.",)))
        expected["actor/loss"] = actor_loss(w)
        adam["actor"].step(w, gradient(actor_loss, w, ("learner.actor.",)))
        for name in [name for name in w if name.startswith("learner.target.")]:
            w[name] = 0.9 * w[name] + 0.1 * w[name.replace("target", "critic")]
        metrics = agent.update(batch, intrinsic=True)
        for name, value in expected.items():
            assert float(metrics[name]) == pytest.approx(value, rel=2e-4, abs=2e-5), name
        for name, value in weights_of(agent).items():
            np.testing.assert_allclose(value, w[name], rtol=1e-4, atol=3e-5, err_msg=name)


# ---- in the loop -----------------------------------------------------------------------------------------------


class Demanding(Objective):
    """Asks for everything and notes what it got."""

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace("onehot", 2, every=10)

    @property
    def needs(self) -> Needs:
        return Needs(nstep=1, batches=3, skill_start=True, path=4, goals=0.1)

    def __init__(self, spaces: Spaces, hidden: int, options: Any) -> None:
        super().__init__(spaces, hidden, options)
        self.weight = nn.Parameter(torch.ones(()))
        self.batches: list[Batch] = []
        self.told: list[float] = []

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        self.batches.append(batch)
        return self.weight.square(), {"representation/loss": self.weight.detach().square()}

    def reward(self, batch: Batch) -> Tensor:
        self.told.append(self.progress)
        return torch.ones_like(batch.reward)


def test_the_loop_provides_what_an_objective_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    register("demanding")(Demanding)
    config = override(pretrain_defaults("gridworld", "demanding", "smoke"), {"steps": 120, "num_envs": 2})
    agent = api.make_agent(config)
    run = Run.plan(tmp_path / "run", "pretrain", to_dict(config)).create({"version": cic.__version__})
    loop = Loop(run, config, envs.make("gridworld", num_envs=2, seed=0), agent, pretrain, quiet=True)
    loop.train()
    objective, width = agent.objective, agent.spaces.obs
    assert isinstance(objective, Demanding)
    assert len(objective.batches) == 3 * loop.updates > 0
    assert (loop.replay.nstep, config.learning.nstep) == (1, 3)
    assert objective.told == sorted(objective.told)
    assert {round(120 * told, 9) for told in objective.told} <= set(range(config.warmup, 121, 2)), "steps of 120"
    for batch in objective.batches:
        shapes = {name: tuple(extra.shape[1:]) for name, extra in batch.extras.items()}
        points = {
            "first_obs": (width,),
            "skill_end": (1,),
            "path": (4, width),
            "goal": (width,),
            "random_goal": (width,),
        }
        assert shapes == points
        assert set(batch.discount.flatten().tolist()) <= {0.0, float(np.float32(config.learning.gamma))}
        assert torch.equal(batch.extras["path"][:, 0], batch.extras["first_obs"])
    assert len({batch.obs.sum().item() for batch in objective.batches}) > loop.updates, "the batches are fresh"
