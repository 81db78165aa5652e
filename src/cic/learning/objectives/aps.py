"""APS, active pre-training with successor features (Liu & Abbeel 2021): exploration, and features in
which a task's reward is linear.

    loss   = −mean z · φ̂(s')
    reward = log(1 + mean over the k nearest of ‖φ(s') − φ(s'_k)‖ / running mean) + z · φ̂(s')
    Q      = z · ψ(s, a, z), with ψ the successor features that the critic's heads output
    z*     = the least-squares solution of r ≈ z · φ̂(s'), normalised

φ̂ is φ divided by its norm. Deviations from the paper, all of them URLB's: no generalised policy improvement over
sampled skills; only the product of ψ and z is fitted; particles are unnormalised φ; the point itself counts as its
nearest neighbour; a margin of 1e-4 is subtracted from the distances. Two deviations from URLB: its least squares swaps
rewards and features; it fits n-step returns on φ̂(s), this file one-step rewards on φ̂(s').
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cic.core.config import require
from cic.core.types import Batch, Metrics, Spaces
from cic.learning.networks import Critic, mlp, orthogonal_init
from cic.learning.objectives.base import Objective, SkillSpace, register
from cic.learning.particles import RunningStatistics, knn_distances
from cic.learning.successor import SuccessorCritic, least_squares


@dataclass(frozen=True)
class APSOptions:
    skill_dim: int = 10
    """Dimension of skills and features."""
    skill_every: int = 5
    """Steps for which a skill is kept in pre-training."""
    knn: int = 12
    """Nearest neighbours in the batch, the point itself included."""
    knn_margin: float = 1e-4
    """Subtracted from each normalised distance; the result is clipped at 0."""

    def __post_init__(self) -> None:
        require(self.skill_dim >= 1, f"skill_dim must be at least 1, not {self.skill_dim}")
        require(self.skill_every >= 1, f"skill_every must be at least 1, not {self.skill_every}")
        require(self.knn >= 2, "knn must be at least 2: the nearest neighbour is the point itself")
        require(self.knn_margin >= 0, f"knn_margin must not be negative, is {self.knn_margin}")


@register("aps")
class APS(Objective):
    """Particle entropy and successor features in one space (Liu & Abbeel 2021)."""

    Options = APSOptions
    title = "APS"
    options: APSOptions

    def __init__(self, spaces: Spaces, hidden: int, options: APSOptions) -> None:
        super().__init__(spaces, hidden, options)
        self.features = mlp(spaces.obs, hidden, hidden, options.skill_dim)
        self.apply(orthogonal_init)
        self.distances = RunningStatistics()

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace("sphere", self.options.skill_dim, self.options.skill_every)

    def make_critic(self) -> Critic:
        action, choices = self.spaces.action, self.spaces.choices
        return SuccessorCritic(self.policy_input_dim, action, self.hidden, self.options.skill_dim, choices)

    def embed(self, obs: Tensor) -> Tensor:
        embedded: Tensor = self.features(obs)
        return embedded

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        loss = -(F.normalize(self.features(batch.next_obs), dim=1) * batch.skill).sum(dim=1).mean()
        return loss, {"representation/loss": loss.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        features = self.features(batch.next_obs)
        distances = knn_distances(features, features, min(self.options.knn, len(features)))
        self.distances.update(distances)
        scale = self.distances.mean.clamp_min(1e-8)  # identical states have distance 0
        spread = (distances / scale - self.options.knn_margin).clamp_min_(0).mean(dim=1, keepdim=True)
        alignment = (F.normalize(features, dim=1) * batch.skill).sum(dim=1, keepdim=True)
        return torch.log1p(spread) + alignment

    def diagnose(self, batch: Batch) -> Metrics:
        return {"reward/running_distance": self.distances.mean.squeeze()}

    @torch.no_grad()
    def infer_skill(self, next_obs: Tensor, reward: Tensor) -> Tensor | None:
        """(dim,): the skill whose product with the features is nearest to the rewards (N, 1)."""
        return least_squares(F.normalize(self.features(next_obs), dim=1), reward)
