"""LSD, Lipschitz-constrained skill discovery (Park et al. 2022): move far along a skill's direction in a
latent space whose distances are at most those between states.

    Δ      = φ(s') − φ(s), every layer of φ divided by its largest singular value
    loss   = −mean Δ · z
    reward = Δ · z

One-hot skills are centred as in METRA. Singular values are estimated by one power iteration after each step, as a
product uᵀWv through which gradients flow.

Deviations from the released code: replayed batches (it updates only from new episodes of 4,000 steps; its README
recommends the authors' off-policy successor); one learning rate (there 3e-5 for φ and 1e-4 for the rest); the power
iteration follows the step instead of preceding each forward pass; URLB's networks; no survival bonus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics, Needs, Spaces
from cic.learning.objectives.base import METRA_SAC, Objective, SkillKind, SkillSpace, register, require_kind


class SpectralLinear(nn.Module):
    """A linear layer whose weight is divided by (an estimate of) its largest singular value."""

    left: Tensor
    right: Tensor

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(fan_out, fan_in)))
        self.bias = nn.Parameter(torch.zeros(fan_out))
        self.register_buffer("left", F.normalize(torch.randn(fan_out), dim=0))
        self.register_buffer("right", torch.zeros(fan_in))
        self.iterate()

    @torch.no_grad()
    def iterate(self) -> None:
        """One power iteration."""
        self.right.copy_(F.normalize(self.left @ self.weight, dim=0))
        self.left.copy_(F.normalize(self.weight @ self.right, dim=0))

    def forward(self, x: Tensor) -> Tensor:
        largest = self.left @ self.weight @ self.right
        return F.linear(x, self.weight / largest, self.bias)


@dataclass(frozen=True)
class LSDOptions:
    skill_dim: int = 2
    """Dimension of the latent space, or the number of one-hot skills."""
    skill_every: int = 0
    """Steps for which a skill is kept in pre-training; 0 keeps it for the whole episode."""
    skill_kind: SkillKind = "normal"
    """`normal` vectors (released), directions (`sphere`, as in METRA's repository) or `onehot` skills."""

    def __post_init__(self) -> None:
        require(self.skill_every >= 0, f"skill_every must not be negative, is {self.skill_every}")
        require_kind(self.skill_kind, self.skill_dim, ("sphere", "normal", "onehot"), "LSD")


@register("lsd")
class LSD(Objective):
    """Latent steps along the skill under a Lipschitz bound (Park et al. 2022)."""

    Options = LSDOptions
    title = "LSD"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"released": {}, "urlb": {"skill_every": 50}}
    recommended: ClassVar[dict[str, dict[str, Any]]] = {
        "released": METRA_SAC | {"learning": METRA_SAC["learning"] | {"tune_alpha": False}}
    }
    options: LSDOptions

    def __init__(self, spaces: Spaces, hidden: int, options: LSDOptions) -> None:
        super().__init__(spaces, hidden, options)
        self.latent = nn.Sequential(
            SpectralLinear(spaces.obs, hidden),
            nn.ReLU(inplace=True),
            SpectralLinear(hidden, hidden),
            nn.ReLU(inplace=True),
            SpectralLinear(hidden, options.skill_dim),
        )

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace(self.options.skill_kind, self.options.skill_dim, self.options.skill_every or None)

    @property
    def needs(self) -> Needs:
        return Needs(nstep=1)

    def embed(self, obs: Tensor) -> Tensor:
        embedded: Tensor = self.latent(obs)
        return embedded

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        loss = -self._along(batch).mean()
        return loss, {"representation/loss": loss.detach()}

    def after_step(self) -> None:
        for layer in self.latent:
            if isinstance(layer, SpectralLinear):
                layer.iterate()

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        return self._along(batch)

    def _along(self, batch: Batch) -> Tensor:
        """(B, 1)"""
        step = self.latent(batch.next_obs) - self.latent(batch.obs)
        along: Tensor = (step * self.skills.directions(batch.skill)).sum(dim=1, keepdim=True)
        return along

    @torch.no_grad()
    def goal_skill(self, obs: Tensor, goal: Tensor) -> Tensor:
        return self.skills.towards(self.latent(goal) - self.latent(obs))
