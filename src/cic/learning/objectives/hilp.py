"""HILP, Hilbert foundation policies (Park et al. 2024): a latent space in which the distance of two states is
the number of steps between them, and policies that move in every direction of it.

    V_k(s, g) = −√max(‖φ_k(s) − φ_k(g)‖², 1e-6),  k = 1, 2
    q_k    = r_g + γ_h (1 − at goal) V'_k(s', g),  r_g = 0 at the goal and −1 elsewhere
    loss   = Σ_k mean w (q_k − V_k(s, g))²,  w = τ where min_k q_k ≥ mean_k V'_k(s, g), else 1 − τ
    reward = (φ_1(s') − its running mean) / ρ, in features: the value of a skill is z · ψ
    z*     = √d · the direction of the ridge solution of r ≈ z · (φ_1(s') − mean)

Goals: 62.5 % from the same episode, a geometric number of steps later, else any state. Skills lie on the
sphere of radius √d and are redrawn in each update: half from the prior, half as Cov⁻¹ φ_1(s') of states of the batch.

The paper rewards displacements, (φ(s') − φ(s)) · z; these features are the released default. Deviations from the
released code: `cic pretrain` collects data online; target networks start equal to φ (there they start from
other random weights, a mistake); ψ is the critic of this library with two heads; features are divided by ρ, their
running root mean square (there ρ = 1: the optimal policies are the same, but ψ must first grow to large values); a
hundredth of the features' mean square is added to Cov and to the regression, because skills would otherwise point along
features that hardly vary and that ψ has not learned.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics, Needs, Spaces
from cic.learning.networks import Critic, mlp, orthogonal_init
from cic.learning.objectives.base import Objective, SkillSpace, register
from cic.learning.successor import SuccessorCritic, least_squares, ridge_of

RIDGE = 0.01  # in units of the features' mean square, see `least_squares`
SAME_EPISODE, GOAL_RATE, TARGET_RATE, MEAN_RATE = 0.625, 0.01, 0.005, 0.005


@dataclass(frozen=True)
class HILPOptions:
    skill_dim: int = 50
    """d, dimension of skills and features."""
    skill_every: int = 300
    """Steps for which a skill is kept in pre-training."""
    distance_discount: float = 0.98
    """γ_h, discount of distances; the released code uses 0.96 for walker."""
    expectile: float = 0.5
    """τ, weight of targets that are better than expected."""
    representation_lr: float = 5e-4
    """Learning rate of φ, instead of the run's."""
    mixed_skills: float = 0.5
    """Share of an update's skills that lead to a state instead of being drawn from the prior."""

    def __post_init__(self) -> None:
        require(self.skill_dim >= 2, f"skill_dim must be at least 2, not {self.skill_dim}")
        require(self.skill_every >= 1, f"skill_every must be at least 1, not {self.skill_every}")
        require(0 <= self.distance_discount < 1, f"distance_discount must lie in [0, 1), not {self.distance_discount}")
        require(0 < self.expectile < 1, f"expectile must lie in (0, 1), not {self.expectile}")
        require(self.representation_lr > 0, f"representation_lr must be positive, not {self.representation_lr}")
        require(0 <= self.mixed_skills <= 1, f"mixed_skills must lie in [0, 1], not {self.mixed_skills}")


@register("hilp")
class HILP(Objective):
    """Directions of a space of temporal distances (Park et al. 2024)."""

    Options = HILPOptions
    title = "HILP"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"released": {}, "urlb": {}}
    recommended: ClassVar[dict[str, dict[str, Any]]] = {
        "released": {"learner": "ddpg", "learning": {"nstep": 1, "gamma": 0.98}}
    }
    scales: ClassVar[dict[str, dict[str, Any]]] = {"smoke": {"skill_dim": 8}}
    redraws_skills = True
    options: HILPOptions
    centre: Tensor
    spread: Tensor

    def __init__(self, spaces: Spaces, hidden: int, options: HILPOptions) -> None:
        super().__init__(spaces, hidden, options)
        self.latents = nn.ModuleList(mlp(spaces.obs, hidden, hidden, options.skill_dim) for _ in range(2))
        self.apply(orthogonal_init)
        self.targets = copy.deepcopy(self.latents).requires_grad_(False)
        self.register_buffer("centre", torch.zeros(options.skill_dim))
        self.register_buffer("spread", torch.ones(()))

    @property
    def skills(self) -> SkillSpace:
        options = self.options
        return SkillSpace("sphere", options.skill_dim, options.skill_every, radius=math.sqrt(options.skill_dim))

    @property
    def needs(self) -> Needs:
        return Needs(nstep=1, goals=GOAL_RATE)

    def make_critic(self) -> Critic:
        action, choices = self.spaces.action, self.spaces.choices
        return SuccessorCritic(self.policy_input_dim, action, self.hidden, self.options.skill_dim, choices)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        return [{"params": list(self.latents.parameters()), "lr": self.options.representation_lr}]

    @torch.no_grad()
    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        count, device = len(batch.obs), batch.obs.device
        order = torch.randperm(count, generator=generator, device=device)
        levels = torch.rand(count, 2, generator=generator, device=device)
        mixed = levels[:, :1] < self.options.mixed_skills
        skill = torch.where(mixed, self._leading_to(batch.next_obs)[order], self.skills.draw(count, generator))
        same = levels[:, 1:] < SAME_EPISODE
        aim = torch.where(same, batch.extras["goal"], batch.extras["random_goal"])
        return batch._replace(skill=skill).with_extras(aim=aim)

    def _leading_to(self, states: Tensor) -> Tensor:
        """(B, d): Cov⁻¹ φ of each state, of length √d."""
        features = self._features(states)
        covariance = features.T @ features / len(features)
        return self.skills.towards(features @ torch.linalg.inv_ex(covariance + ridge_of(covariance, RIDGE)).inverse)

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        goal = batch.extras["aim"]
        with torch.no_grad():
            there = (torch.linalg.vector_norm(batch.obs - goal, dim=1) < 1e-6).float()
            later = self._values(self.targets, batch.next_obs, goal)  # (2, B)
            wanted = there - 1 + self.options.distance_discount * (1 - there) * later
            better = wanted.amin(dim=0) >= self._values(self.targets, batch.obs, goal).mean(dim=0)
            weight = torch.where(better, self.options.expectile, 1 - self.options.expectile)
        values = self._values(self.latents, batch.obs, goal)
        loss = (weight * (wanted - values).square()).mean(dim=1).sum()
        return loss, {"representation/loss": loss.detach(), "representation/distance": -values.detach().mean()}

    def _values(self, latents: nn.ModuleList, obs: Tensor, goal: Tensor) -> Tensor:
        """V (2, B)"""
        squares = [(latent(obs) - latent(goal)).square().sum(dim=1) for latent in latents]
        return -torch.stack(squares).clamp_min(1e-6).sqrt()

    @torch.no_grad()
    def after_step(self) -> None:
        for slow, fast in zip(self.targets.parameters(), self.latents.parameters(), strict=True):
            slow.lerp_(fast, TARGET_RATE)

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        latent = self.latents[0](batch.next_obs)
        self.centre.lerp_(latent.mean(dim=0), MEAN_RATE)
        features: Tensor = latent - self.centre
        self.spread.lerp_(features.square().mean().sqrt(), MEAN_RATE)
        return features / self.spread

    def _features(self, obs: Tensor) -> Tensor:
        features: Tensor = self.latents[0](obs) - self.centre
        return features

    def embed(self, obs: Tensor) -> Tensor:
        return self._features(obs)

    @torch.no_grad()
    def infer_skill(self, next_obs: Tensor, reward: Tensor) -> Tensor | None:
        direction = least_squares(self._features(next_obs), reward, RIDGE)
        return None if direction is None else self.skills.radius * direction

    @torch.no_grad()
    def goal_skill(self, obs: Tensor, goal: Tensor) -> Tensor:
        return self.skills.towards(self.latents[0](goal) - self.latents[0](obs))
