"""DIAYN, diversity is all you need (Eysenbach et al. 2019, eq. 3): visit states from which the skill can be inferred.

    loss   = cross-entropy of q(z | s')
    reward = log q(z | s') − log p(z), with p(z) = 1/n

Deviations from the paper, all of them URLB's: DDPG with fixed exploration noise instead of the entropy-regularised
actor; a skill is redrawn every 50 steps instead of once per episode; 16 skills.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cic.core.config import require
from cic.core.types import Batch, Metrics, Spaces
from cic.learning.networks import mlp, orthogonal_init
from cic.learning.objectives.base import Objective, SkillSpace, register


@dataclass(frozen=True)
class DIAYNOptions:
    skill_dim: int = 16
    """Number of skills."""
    skill_every: int = 50
    """Steps for which a skill is kept in pre-training."""

    def __post_init__(self) -> None:
        require(self.skill_dim >= 1, f"skill_dim must be at least 1, not {self.skill_dim}")
        require(self.skill_every >= 1, f"skill_every must be at least 1, not {self.skill_every}")


@register("diayn")
class DIAYN(Objective):
    """A classifier of the skill from the state (Eysenbach et al. 2019)."""

    Options = DIAYNOptions
    title = "DIAYN"
    options: DIAYNOptions

    def __init__(self, spaces: Spaces, hidden: int, options: DIAYNOptions) -> None:
        super().__init__(spaces, hidden, options)
        self.classifier = mlp(spaces.obs, hidden, hidden, options.skill_dim)
        self.apply(orthogonal_init)

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace("onehot", self.options.skill_dim, self.options.skill_every)

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        loss = self._surprise(batch).mean()
        return loss, {"representation/loss": loss.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        return (math.log(self.options.skill_dim) - self._surprise(batch)).unsqueeze(1)

    def _surprise(self, batch: Batch) -> Tensor:
        """(B,): −log q(z | s')"""
        return F.cross_entropy(self.classifier(batch.next_obs), batch.skill.argmax(dim=1), reduction="none")

    @torch.no_grad()
    def confidence(self, batch: Batch) -> Tensor:
        return (-self._surprise(batch)).exp()[:, None]

    @torch.no_grad()
    def diagnose(self, batch: Batch) -> Metrics:
        hits = self.classifier(batch.next_obs).argmax(dim=1) == batch.skill.argmax(dim=1)
        return {"skill/accuracy": hits.float().mean()}
