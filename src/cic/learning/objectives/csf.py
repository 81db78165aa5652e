"""CSF, contrastive successor features (Zheng et al. 2025, "Can a MISL Fly?"): METRA as mutual information, with a
contrastive loss instead of the constraint and successor features instead of rewards.

    Δ      = φ(s') − φ(s)
    loss   = −mean (Δ · z − ξ log Σ_i exp(Δ · z_i)),  z_i: 256 fresh skills, shared by the batch, z not among them
    reward = Δ, in features: the value of a skill is z · ψ
    z*     = the least-squares solution of r ≈ z · φ(s') + constant, normalised

As in the released code, the reward is Δ · z, without the contrastive sum. The regression is specific to this library:
the discounted sum of Δ along a path is (1 − γ) times that of φ(s'), minus φ of its start, so the policy of z maximises
the reward z · φ(s').

Deviations from the released code: URLB's networks, observations without scaling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cic.core.config import require
from cic.core.types import Batch, Metrics, Needs, Spaces
from cic.learning.networks import Critic, mlp, orthogonal_init
from cic.learning.objectives.base import METRA_SAC, Objective, SkillSpace, register
from cic.learning.successor import SuccessorCritic, least_squares


@dataclass(frozen=True)
class CSFOptions:
    skill_dim: int = 2
    """Dimension of skills and features."""
    skill_every: int = 0
    """Steps for which a skill is kept in pre-training; 0 keeps it for the whole episode."""
    contrast: float = 5.0
    """ξ, weight of the contrastive sum."""
    negatives: int = 256
    """Number of fresh skills in the contrastive sum."""

    def __post_init__(self) -> None:
        require(self.skill_every >= 0, f"skill_every must not be negative, is {self.skill_every}")
        require(self.skill_dim >= 2, f"skill_dim must be at least 2, not {self.skill_dim}")
        require(self.contrast > 0, f"contrast must be positive, not {self.contrast}")
        require(self.negatives >= 1, f"negatives must be at least 1, not {self.negatives}")


@register("csf")
class CSF(Objective):
    """Contrastive latent steps and their successor features (Zheng et al. 2025)."""

    Options = CSFOptions
    title = "CSF"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"released": {}, "urlb": {"skill_every": 50}}
    recommended: ClassVar[dict[str, dict[str, Any]]] = {"released": METRA_SAC}
    options: CSFOptions

    def __init__(self, spaces: Spaces, hidden: int, options: CSFOptions) -> None:
        super().__init__(spaces, hidden, options)
        self.latent = mlp(spaces.obs, hidden, hidden, options.skill_dim)
        self.apply(orthogonal_init)

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace("sphere", self.options.skill_dim, self.options.skill_every or None)

    @property
    def needs(self) -> Needs:
        return Needs(nstep=1)

    def make_critic(self) -> Critic:
        action, choices = self.spaces.action, self.spaces.choices
        return SuccessorCritic(self.policy_input_dim, action, self.hidden, self.options.skill_dim, choices)

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        return batch.with_extras(negatives=self.skills.draw(self.options.negatives, generator))

    def embed(self, obs: Tensor) -> Tensor:
        embedded: Tensor = self.latent(obs)
        return embedded

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        step = self._step(batch)
        along = (step * batch.skill).sum(dim=1)
        contrast = torch.logsumexp(step @ batch.extras["negatives"].T, dim=1)
        loss = -(along - self.options.contrast * contrast).mean()
        return loss, {
            "representation/loss": loss.detach(),
            "representation/along": along.detach().mean(),
            "representation/contrast": contrast.detach().mean(),
        }

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        return self._step(batch)

    def _step(self, batch: Batch) -> Tensor:
        """Δ (B, dim)"""
        step: Tensor = self.latent(batch.next_obs) - self.latent(batch.obs)
        return step

    @torch.no_grad()
    def infer_skill(self, next_obs: Tensor, reward: Tensor) -> Tensor | None:
        features = self.latent(next_obs)
        return least_squares(features - features.mean(dim=0), reward - reward.mean())

    @torch.no_grad()
    def goal_skill(self, obs: Tensor, goal: Tensor) -> Tensor:
        return self.skills.towards(self.latent(goal) - self.latent(obs))
