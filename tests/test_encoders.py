"""The encoder's seam: whose gradients reach it, its own optimiser, its place in checkpoints; numbers by hand."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from agent_setup import restored, same
from helpers import random_batch
from torch import Tensor, nn

from cic.core.types import Batch, Spaces
from cic.learning.agent import Agent
from cic.learning.encoders import Encoder, Identity
from cic.learning.learners import get_learner
from cic.learning.learners.base import learners_for
from cic.learning.objectives import get_objective, objectives

RAW, FEATURES, ACTION, HIDDEN, BATCH = 6, 4, 2, 8, 16
BOTH = frozenset({"objective", "critic"})


class Linear(Encoder):
    """Features are a matrix times the observation."""

    def __init__(self, teachers: frozenset[str]) -> None:
        super().__init__()
        self.learns_from = teachers  # type: ignore[misc]  a class has one; here each test has its own
        self.dim = FEATURES
        self.layer = nn.Linear(RAW, FEATURES)

    def forward(self, obs: Tensor) -> Tensor:
        features: Tensor = self.layer(obs)
        return features


def make_agent(
    teachers: frozenset[str] = BOTH, objective: str = "diayn", learner: str = "ddpg", seed: int = 0, **config: Any
) -> Agent:
    cls, settings = get_objective(objective), get_learner(learner).Config(hidden=HIDDEN, batch=BATCH, lr=1e-2, **config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = Linear(teachers)
        method = cls(Spaces(FEATURES, ACTION), HIDDEN, cls.Options(**cls.scales.get("smoke", {})))
        parts = get_learner(learner).build(settings, method.policy_input_dim, ACTION, method.make_critic)
    return Agent(Spaces(RAW, ACTION), encoder, method, parts, seed=seed)


def batches(agent: Agent, count: int) -> list[Batch]:
    drawn = []
    for seed in range(count):
        skill = torch.from_numpy(agent.objective.skills.sample(BATCH, np.random.default_rng(seed)))
        drawn.append(random_batch(BATCH, RAW, ACTION, 0, seed)._replace(skill=skill))
    return drawn


class ByHand:
    """DIAYN and DDPG without noise on a learnable encoder, written out with `backward` and one Adam per part."""

    def __init__(self, agent: Agent, teachers: frozenset[str]) -> None:
        self.teachers, self.tau = teachers, agent.learner.config.tau
        self.encoder, self.classifier = copy.deepcopy(agent.encoder), copy.deepcopy(agent.objective.classifier)
        self.actor, self.critic = copy.deepcopy(agent.learner.actor), copy.deepcopy(agent.learner.critic)
        self.target = copy.deepcopy(agent.learner.target)
        parts = {"encoder": self.encoder, "objective": self.classifier, "critic": self.critic, "actor": self.actor}
        self.adam = {name: torch.optim.Adam(part.parameters(), lr=1e-2) for name, part in parts.items()}

    def descend(self, loss: Tensor, name: str) -> None:
        for adam in self.adam.values():
            adam.zero_grad()
        loss.backward()
        self.adam[name].step()
        if name in self.teachers:
            self.adam["encoder"].step()

    def surprise(self, batch: Batch) -> Tensor:
        return -(self.classifier(self.encoder(batch.next_obs)).log_softmax(dim=1) * batch.skill).sum(
            dim=1, keepdim=True
        )

    def update(self, batch: Batch) -> None:
        self.descend(self.surprise(batch).mean(), "objective")
        reward = np.log(batch.skill.shape[1]) - self.surprise(batch).detach()
        x = torch.cat([self.encoder(batch.obs), batch.skill], dim=1)
        later = torch.cat([self.encoder(batch.next_obs), batch.skill], dim=1).detach()
        next_q = self.target.features(later, self.actor(later).tanh()).amin(dim=0)
        goal = (reward + batch.discount * next_q).detach()
        q1, q2 = self.critic.features(x, batch.action)
        self.descend((q1 - goal).square().mean() + (q2 - goal).square().mean(), "critic")
        x = x.detach()  # the features that the critic saw; the actor does not move the encoder
        self.descend(-self.critic.features(x, self.actor(x).tanh()).amin(dim=0).mean(), "actor")
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                slow += self.tau * (fast - slow)


@pytest.mark.parametrize(
    "teachers", [frozenset(), {"objective"}, {"critic"}, BOTH], ids=lambda names: "+".join(sorted(names))
)
def test_updates_are_those_written_by_hand(teachers: set[str]) -> None:
    agent = make_agent(frozenset(teachers), noise=0.0, tau=0.1)
    hand = ByHand(agent, frozenset(teachers))
    before = agent.encoder.layer.weight.clone()
    for batch in batches(agent, 5):
        agent.update(batch, intrinsic=True)
        hand.update(batch)
    pairs = [
        (agent.encoder, hand.encoder),
        (agent.objective.classifier, hand.classifier),
        (agent.learner.critic, hand.critic),
        (agent.learner.target, hand.target),
        (agent.learner.actor, hand.actor),
    ]
    for ours, theirs in pairs:
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert torch.equal(agent.encoder.layer.weight, before) == (not teachers)


@pytest.mark.parametrize("learner", learners_for(()))
def test_in_finetuning_only_the_critic_teaches_and_never_the_actor(learner: str) -> None:
    for teachers, moves in ((BOTH, True), (frozenset({"critic"}), True), (frozenset({"objective"}), False)):
        agent = make_agent(teachers, learner=learner)
        before = agent.encoder.layer.weight.clone()
        for batch in batches(agent, 2):
            agent.update(batch, intrinsic=False)
        assert torch.equal(agent.encoder.layer.weight, before) != moves
    counts = {
        name.split(".")[0]: float(value) for name, value in make_trained(learner).items() if name.endswith("0.step")
    }
    assert counts["encoder"] == 2, "one step for each of the critic's, none for the actor's"


def make_trained(learner: str) -> dict[str, Tensor]:
    agent = make_agent(frozenset({"critic"}), learner=learner)
    for batch in batches(agent, 2):
        agent.update(batch, intrinsic=True)
    return agent.optimiser_state()


@pytest.mark.parametrize("objective", [name for name, _ in objectives()])
def test_every_objective_works_on_features(objective: str) -> None:
    agent = make_agent(objective=objective)
    before = agent.encoder.layer.weight.clone()
    for batch in batches(agent, 2):
        metrics = agent.update(batch, intrinsic=True)
        assert all(bool(value.isfinite()) for value in metrics.values())
    assert not torch.equal(agent.encoder.layer.weight, before)


def test_what_is_prepared_is_prepared_from_features() -> None:
    """RND's normalised observation and its random features, which loss and reward share."""
    agent, seen = make_agent(objective="rnd"), []
    agent.objective.target.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    (batch,) = batches(agent, 1)
    features = agent.encoder(batch.obs).detach()
    agent.update(batch, intrinsic=True)
    scaled = (features - features.mean(dim=0)) / (features.var(dim=0, correction=0) + 1e-5).sqrt()
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], scaled, rtol=1e-4, atol=1e-5)


def test_an_encoder_that_learns_from_both_takes_two_steps_of_one_optimiser() -> None:
    agent = make_agent()
    for batch in batches(agent, 3):
        agent.update(batch, intrinsic=True)
    state = agent.optimiser_state()
    assert float(state["encoder.0.step"]) == 6
    assert float(state["critic.0.step"]) == float(state["objective.0.step"]) == 3


def test_an_encoder_without_teachers_has_no_optimiser() -> None:
    agent = make_agent(frozenset())
    agent.update(batches(agent, 1)[0], intrinsic=True)
    assert not [name for name in agent.optimiser_state() if name.startswith("encoder.")]


@pytest.mark.parametrize("learner", learners_for(()))
def test_the_encoder_travels_in_checkpoints(learner: str) -> None:
    first, second = make_agent(learner=learner), make_agent(learner=learner, seed=1)
    todo = batches(first, 4)
    for batch in todo[:3]:
        first.update(batch, intrinsic=True)
    assert {"encoder.layer.weight", "encoder.layer.bias"} <= first.state_dict().keys()
    restored(first, second)
    for agent in (first, second):
        agent.update(todo[3], intrinsic=True)
    assert same(first, second)


def test_the_encoder_is_inherited() -> None:
    source, agent = make_agent(), make_agent(seed=1)
    agent.inherit(source.state_dict(), "none")
    assert torch.equal(agent.encoder.layer.weight, source.encoder.layer.weight)
    obs, skill = np.ones((3, RAW), np.float32), np.eye(16, dtype=np.float32)[:3]
    assert (agent.act(obs, skill) == source.act(obs, skill)).all()


def test_what_acts_sees_features() -> None:
    agent = make_agent()
    obs, skill = np.ones((3, RAW), np.float32), np.eye(16, dtype=np.float32)[:3]
    features = agent.encoder.layer(torch.from_numpy(obs))
    expected = agent.learner.actor(torch.cat([features, torch.from_numpy(skill)], dim=1)).tanh()
    np.testing.assert_allclose(agent.act(obs, skill), expected.detach().numpy(), atol=1e-6)


def test_states_are_features_already() -> None:
    agent = make_agent()
    plain = Agent(Spaces(FEATURES, ACTION), Identity(FEATURES), agent.objective, agent.learner)
    batch = random_batch(BATCH, FEATURES, ACTION, 16)
    assert plain.encode(batch, detached=False) is batch
    assert plain.encoder.dim == FEATURES
    assert not list(plain.encoder.parameters())


def test_a_compiled_agent_leaves_the_losses_that_teach_an_encoder_plain() -> None:
    agent = make_agent(frozenset({"critic"}))
    agent.compile_losses()
    names = ("critic", "actor", "objective")
    compiled = {name: agent.gradient_steps()[name].compiled is not None for name in names}
    assert compiled == {"critic": False, "actor": True, "objective": True}
