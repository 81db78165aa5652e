"""VISR, variational intrinsic successor features (Hansen et al. 2020): features that predict the skill, and a
critic for every reward that is linear in them.

    loss   = −mean z · φ̂(s'),  φ̂ = φ / ‖φ‖: a von Mises–Fisher discriminator of the skill
    reward = φ̂(s'), in features: the value of a skill is z · ψ
    z*     = the least-squares solution of r ≈ z · φ̂(s'), normalised

In the paper: 5 dimensions on the unit sphere, Atari, and few rewarded steps after a long phase without rewards.
Deviations: continuous actions with an actor instead of Q-learning; no generalised policy
improvement over skills near z*. CSF's repository rewards the state in which the action was taken and uses the
*unnormalised* φ in the successor features; here both are φ̂(s'), as in APS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from cic.core.config import require
from cic.core.types import Batch, Metrics, Needs, Spaces
from cic.learning.networks import Critic, mlp, orthogonal_init
from cic.learning.objectives.base import METRA_SAC, Objective, SkillSpace, register
from cic.learning.successor import SuccessorCritic, least_squares


@dataclass(frozen=True)
class VISROptions:
    skill_dim: int = 5
    """Dimension of skills and features."""
    skill_every: int = 0
    """Steps for which a skill is kept in pre-training; 0 keeps it for the whole episode."""

    def __post_init__(self) -> None:
        require(self.skill_every >= 0, f"skill_every must not be negative, is {self.skill_every}")
        require(self.skill_dim >= 2, f"skill_dim must be at least 2, not {self.skill_dim}")


@register("visr")
class VISR(Objective):
    """Successor features of a skill discriminator (Hansen et al. 2020)."""

    Options = VISROptions
    title = "VISR"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"released": {}, "urlb": {"skill_every": 50}}
    recommended: ClassVar[dict[str, dict[str, Any]]] = {"released": METRA_SAC}
    options: VISROptions

    def __init__(self, spaces: Spaces, hidden: int, options: VISROptions) -> None:
        super().__init__(spaces, hidden, options)
        self.features = mlp(spaces.obs, hidden, hidden, options.skill_dim)
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

    def embed(self, obs: Tensor) -> Tensor:
        embedded: Tensor = self.features(obs)
        return embedded

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        loss = -(self._unit_features(batch.next_obs) * batch.skill).sum(dim=1).mean()
        return loss, {"representation/loss": loss.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        return self._unit_features(batch.next_obs)

    def _unit_features(self, obs: Tensor) -> Tensor:
        return F.normalize(self.features(obs), dim=1)

    @torch.no_grad()
    def infer_skill(self, next_obs: Tensor, reward: Tensor) -> Tensor | None:
        return least_squares(self._unit_features(next_obs), reward)
