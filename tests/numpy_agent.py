"""Agents and learners once more in plain NumPy: the formulas of the papers, gradients by central differences."""

from __future__ import annotations

import math
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
    released_loss,
    released_reward,
    relu_mlp,
    transition_embedding,
    weights_of,
)

from cic.core.types import Batch
from cic.learning.agent import Agent

EDGE = 1 - 1e-6
ACTOR, CRITIC, TARGET, TARGET_ACTOR = "learner.actor", "learner.critic", "learner.target", "learner.target_actor"


class NumpyLearner:
    """What the learners share; `w` are the agent's weights by name, changed in place."""

    def __init__(self, config: Any, w: Weights, generator: torch.Generator) -> None:
        self.config, self.w, self.generator = config, w, generator
        self.adam = {name: NumpyAdam(config.lr) for name in ("critic", "actor", "temperature")}
        self.updates = self.clamped = 0

    def normal(self, shape: tuple[int, ...]) -> Doubles:
        return torch.randn(shape, generator=self.generator).double().numpy()

    def descend_critic(self, seen: Doubles, action: Doubles, goal: Doubles) -> float:
        def loss(w: Weights) -> float:
            q = critic(w, CRITIC, seen, action)
            return float(((q[0] - goal) ** 2).mean() + ((q[1] - goal) ** 2).mean())

        before = loss(self.w)
        self.adam["critic"].step(self.w, gradient(loss, self.w, (f"{CRITIC}.",)))
        return before

    def follow(self, source: str, target: str) -> None:
        for name in [n for n in self.w if n.startswith(f"{source}.")]:
            slow = name.replace(source, target, 1)
            self.w[slow] = (1 - self.config.tau) * self.w[slow] + self.config.tau * self.w[name]


class NumpyDDPG(NumpyLearner):
    def offset(self, mean: Doubles) -> Doubles:
        """Clipped noise and the clamp that follows it: gradients pass straight through both."""
        noise = np.clip(self.config.noise * self.normal(mean.shape), -self.config.noise_clip, self.config.noise_clip)
        self.clamped += int((abs(mean + noise) > EDGE).sum())
        return np.clip(mean + noise, -EDGE, EDGE) - mean

    def update(
        self, seen: Doubles, action: Doubles, reward: Doubles, discount: Doubles, later: Doubles
    ) -> dict[str, float]:
        mean = np.tanh(actor(self.w, ACTOR, later))
        next_action = mean + self.offset(mean)
        goal = reward + discount * critic(self.w, TARGET, later, next_action).min(axis=0)
        numbers = {"critic/loss": self.descend_critic(seen, action, goal), "critic/target": float(goal.mean())}
        offset = self.offset(np.tanh(actor(self.w, ACTOR, seen)))

        def actor_loss(w: Weights) -> float:  # by the critic after its step
            before = actor(w, ACTOR, seen)
            value = float(critic(w, CRITIC, seen, np.tanh(before) + offset).min(axis=0).mean())
            return -value + self.config.saturation * unit * float((before**2).mean())

        policy = np.tanh(actor(self.w, ACTOR, seen))
        unit = abs(float(critic(self.w, CRITIC, seen, policy + offset).min(axis=0).mean()))  # without gradient
        numbers["actor/loss"] = actor_loss(self.w)
        self.adam["actor"].step(self.w, gradient(actor_loss, self.w, (f"{ACTOR}.",)))
        self.follow(CRITIC, TARGET)
        return numbers


class NumpyTD3(NumpyLearner):
    def update(
        self, seen: Doubles, action: Doubles, reward: Doubles, discount: Doubles, later: Doubles
    ) -> dict[str, float]:
        clip = self.config.noise_clip
        mean = np.tanh(actor(self.w, TARGET_ACTOR, later))
        smoothed = mean + np.clip(self.config.target_noise * self.normal(mean.shape), -clip, clip)
        self.clamped += int((abs(smoothed) > EDGE).sum())
        goal = reward + discount * critic(self.w, TARGET, later, np.clip(smoothed, -EDGE, EDGE)).min(axis=0)
        numbers = {"critic/loss": self.descend_critic(seen, action, goal), "critic/target": float(goal.mean())}
        self.updates += 1
        if self.updates % self.config.actor_every == 0:

            def actor_loss(w: Weights) -> float:  # the first critic alone
                mean = np.tanh(actor(w, ACTOR, seen))
                return -float(critic(w, CRITIC, seen, mean)[0].mean())

            numbers["actor/loss"] = actor_loss(self.w)
            self.adam["actor"].step(self.w, gradient(actor_loss, self.w, (f"{ACTOR}.",)))
            self.follow(CRITIC, TARGET)
            self.follow(ACTOR, TARGET_ACTOR)
        return numbers


class NumpySAC(NumpyLearner):
    def sample(self, w: Weights, seen: Doubles, noise: Doubles) -> tuple[Doubles, Doubles]:
        """Actions and log π: the Gaussian's density, divided by the slope of tanh."""
        mean, log_std = np.split(actor(w, ACTOR, seen), 2, axis=1)
        std = np.exp(np.clip(log_std, -5, 2))
        raw = mean + std * noise
        density = np.exp(-(((raw - mean) / std) ** 2) / 2) / (std * math.sqrt(2 * math.pi)) / (1 - np.tanh(raw) ** 2)
        return np.tanh(raw), np.log(density).sum(axis=1, keepdims=True)

    def update(
        self, seen: Doubles, action: Doubles, reward: Doubles, discount: Doubles, later: Doubles
    ) -> dict[str, float]:
        alpha = math.exp(self.w["learner.log_alpha"])
        next_action, log_density = self.sample(self.w, later, self.normal(action.shape))
        soft = critic(self.w, TARGET, later, next_action).min(axis=0) - alpha * log_density
        goal = reward + discount * soft
        numbers = {"critic/loss": self.descend_critic(seen, action, goal), "critic/target": float(goal.mean())}
        noise = self.normal(action.shape)

        def actor_loss(w: Weights) -> float:
            chosen, log_density = self.sample(w, seen, noise)
            value = float(critic(w, CRITIC, seen, chosen).min(axis=0).mean())
            return alpha * float(log_density.mean()) - value

        numbers["actor/loss"] = actor_loss(self.w)
        log_density = self.sample(self.w, seen, noise)[1]  # before the actor's step
        numbers["actor/entropy"] = float(-log_density.mean())
        self.adam["actor"].step(self.w, gradient(actor_loss, self.w, (f"{ACTOR}.",)))
        if self.config.tune_alpha:
            wanted = self.config.target_entropy * action.shape[1]

            def temperature_loss(w: Weights) -> float:
                return float(-w["learner.log_alpha"] * (log_density + wanted).mean())

            numbers["actor/temperature"] = alpha
            slopes = gradient(temperature_loss, self.w, ("learner.log_alpha",))
            self.adam["temperature"].step(self.w, slopes)
        self.follow(CRITIC, TARGET)
        return numbers


LEARNERS: dict[str, type[NumpyLearner]] = {"DDPG": NumpyDDPG, "TD3": NumpyTD3, "SAC": NumpySAC}


class NumpyAgent:
    """Order of one update: CIC's representation, its reward, the learner."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.w = weights_of(agent)
        self.options = agent.objective.options
        self.statistic = Welford()
        self.generator = torch.Generator()
        self.adam = NumpyAdam(agent.learner.config.lr)
        self.learner = LEARNERS[type(agent.learner).__name__](agent.learner.config, self.w, self.generator)

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

    def update(self, batch: Batch, *, intrinsic: bool) -> dict[str, float]:
        self.generator.set_state(self.agent.generator.get_state())
        numbers: dict[str, float] = {}
        reward = doubles(batch.reward)
        if intrinsic:
            if self.options.representation:
                numbers["representation/loss"] = self.learn_representation(batch)
            reward = self.reward(batch)
        seen, later = self.see(batch.obs, batch.skill), self.see(batch.next_obs, batch.skill)
        numbers |= self.learner.update(seen, doubles(batch.action), reward, doubles(batch.discount), later)
        numbers["reward/intrinsic" if intrinsic else "reward/task"] = float(reward.mean())
        return numbers

    def learn_representation(self, batch: Batch) -> float:
        contrast = {"released": released_loss, "infonce": infonce_loss}[self.options.loss]

        def loss(_: Weights) -> float:
            return contrast(cosines(self.objective_weights(), batch), self.options.temperature)

        before = loss(self.w)
        self.adam.step(self.w, gradient(loss, self.w, ("objective.state", "objective.discriminator")))
        return before

    def reward(self, batch: Batch) -> Doubles:
        own = self.objective_weights()
        if self.options.particles == "transition":
            points = transition_embedding(own, batch)
        else:
            points = relu_mlp(own, "state", doubles(batch.next_obs))
        return released_reward(points, self.options.knn, self.statistic, self.options.normaliser)


def assert_updates_agree(agent: Agent, batches: list[Batch], *, intrinsic: bool) -> NumpyAgent:
    """The agent's updates and those of NumPy give the same metrics and the same weights, one after the other."""
    reference = NumpyAgent(agent)
    for batch in batches:
        expected = reference.update(batch, intrinsic=intrinsic)
        metrics = agent.update(batch, intrinsic=intrinsic)
        for name, value in expected.items():
            assert float(metrics[name]) == pytest.approx(value, rel=2e-4, abs=2e-5), name
        for name, value in weights_of(agent).items():
            if "statistics" not in name and "_extra_state" not in name:
                np.testing.assert_allclose(value, reference.w[name], rtol=1e-4, atol=3e-5, err_msg=name)
        assert ("actor/loss" in metrics) == ("actor/loss" in expected)
    return reference
