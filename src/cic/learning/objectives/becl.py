"""BeCL, behaviour contrastive learning (Yang et al. 2023): embeddings of states of the same skill are similar, those
of different skills dissimilar.

    e_ij   = exp(f_i · f_j / T − max of row i),  f the normalised embedding of s'
    ℓ_i    = −log(e_ip / (Σ_{j≠i} e_ij + 1e-6) + 1e-6),  p the first other state of the same skill
    loss   = mean ℓ_i, on three fresh batches per update
    reward = exp(−ℓ_i)

As in the released code, the denominator contains every positive, and the positive of a state may come from the same
trajectory. In the paper, positives are other trajectories of the same skill. One deviation from the released code: a
state without a positive is excluded from the loss and gets no reward; the released code uses the batch's first state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from cic.core.config import require
from cic.core.types import Batch, Metrics, Needs, Spaces
from cic.learning.networks import mlp, orthogonal_init
from cic.learning.objectives.base import Objective, SkillSpace, register


@dataclass(frozen=True)
class BeCLOptions:
    skill_dim: int = 16
    """Number of skills, and dimension of the embedding."""
    skill_every: int = 50
    """Steps for which a skill is kept in pre-training."""
    temperature: float = 0.5
    """T, the temperature of the similarities."""
    contrastive_batches: int = 3
    """Fresh batches from which the embedding learns per update."""

    def __post_init__(self) -> None:
        require(self.skill_dim >= 2, f"skill_dim must be at least 2, not {self.skill_dim}")
        require(self.skill_every >= 1, f"skill_every must be at least 1, not {self.skill_every}")
        require(self.temperature > 0, f"temperature must be positive, not {self.temperature}")
        require(
            self.contrastive_batches >= 1, f"contrastive_batches must be at least 1, not {self.contrastive_batches}"
        )


@register("becl")
class BeCL(Objective):
    """Contrastive learning of states by their skill (Yang et al. 2023)."""

    Options = BeCLOptions
    title = "BeCL"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"released": {}, "urlb": {}}
    options: BeCLOptions

    def __init__(self, spaces: Spaces, hidden: int, options: BeCLOptions) -> None:
        super().__init__(spaces, hidden, options)
        self.embedding = mlp(spaces.obs, hidden, hidden, options.skill_dim)
        self.head = mlp(options.skill_dim, hidden, options.skill_dim)
        self.apply(orthogonal_init)

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace("onehot", self.options.skill_dim, self.options.skill_every)

    @property
    def needs(self) -> Needs:
        return Needs(batches=self.options.contrastive_batches)

    def embed(self, obs: Tensor) -> Tensor:
        embedded: Tensor = self.embedding(obs)
        return embedded

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        likeness, paired = self._likeness(batch)
        loss = -(likeness.log() * paired).sum() / paired.sum().clamp_min(1)
        return loss, {"representation/loss": loss.detach(), "skill/paired": paired.mean()}

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        likeness, paired = self._likeness(batch)
        return (likeness * paired).unsqueeze(1)

    def _likeness(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """exp(−ℓ_i), and 1 where a state has a positive, else 0: both (B,)."""
        embedding = F.normalize(self.head(self.embedding(batch.next_obs)), dim=1)
        similarity = embedding @ embedding.T / self.options.temperature
        e = (similarity - similarity.amax(dim=1, keepdim=True).detach()).exp()
        same = (batch.skill @ batch.skill.T > 0.5).float().fill_diagonal_(0)
        partner = same.argmax(dim=1, keepdim=True)  # the first
        others = e.sum(dim=1) - e.diagonal()
        return e.gather(1, partner).squeeze(1) / (others + 1e-6) + 1e-6, same.amax(dim=1)
