"""METRA, metric-aware abstraction (Park et al. 2024): move far along a skill's direction in a latent space
in which a step has at most length one.

    Δ      = φ(s') − φ(s),  c = min(ε, 1 − size of Δ)
    loss   = −mean (Δ · z + sg(λ) c) + ℓ · sg(mean c),  λ = exp ℓ, with a gradient step of φ and of ℓ
    reward = Δ · z

One-hot skills are centred, z ← (z − 1/n) n / (n − 1), in loss and reward. The paper bounds the squared *norm* of Δ; the
released code bounds the *mean* of its squared entries, which allows steps of √dim: `step_size` selects one (`paper` and
CSF's repository use the sum). As in the released code, ℓ and not λ multiplies the loss of the dual variable.

Deviations from the released code: URLB's networks (there tanh layers, separate critics and no LayerNorm); only
velocities are scaled (in `ant` and `half_cheetah`), not all observations; truncated episodes are bootstrapped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics, Needs, Spaces
from cic.learning.networks import mlp, orthogonal_init
from cic.learning.objectives.base import METRA_SAC, Objective, SkillKind, SkillSpace, register, require_kind


@dataclass(frozen=True)
class METRAOptions:
    skill_dim: int = 2
    """Dimension of the latent space, or the number of one-hot skills."""
    skill_every: int = 0
    """Steps for which a skill is kept in pre-training; 0 keeps it for the whole episode."""
    skill_kind: SkillKind = "sphere"
    """Directions (`sphere`), `normal` vectors or `onehot` skills."""
    step_size: Literal["mean", "sum"] = "mean"
    """Measure of a latent step: the mean of its squared entries (released) or their sum (paper)."""
    slack: float = 1e-3
    """ε, the largest slack of the constraint that counts."""
    dual_start: float = 30.0
    """Initial value of λ."""
    dual_lr: float = 1e-4
    """Learning rate of log λ, instead of the run's."""

    def __post_init__(self) -> None:
        require(self.skill_every >= 0, f"skill_every must not be negative, is {self.skill_every}")
        require_kind(self.skill_kind, self.skill_dim, ("sphere", "normal", "onehot"), "METRA")
        for name in ("slack", "dual_start", "dual_lr"):
            require(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}")


@register("metra")
class METRA(Objective):
    """Latent steps of at most unit length along the skill (Park et al. 2024)."""

    Options = METRAOptions
    title = "METRA"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "released": {},
        "paper": {"step_size": "sum"},
        "urlb": {"skill_every": 50},
    }
    recommended: ClassVar[dict[str, dict[str, Any]]] = {"released": METRA_SAC, "paper": METRA_SAC}
    options: METRAOptions

    def __init__(self, spaces: Spaces, hidden: int, options: METRAOptions) -> None:
        super().__init__(spaces, hidden, options)
        self.latent = mlp(spaces.obs, hidden, hidden, options.skill_dim)
        self.apply(orthogonal_init)
        self.log_dual = nn.Parameter(torch.tensor(math.log(options.dual_start)))

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace(self.options.skill_kind, self.options.skill_dim, self.options.skill_every or None)

    @property
    def needs(self) -> Needs:
        return Needs(nstep=1)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        return [
            {"params": list(self.latent.parameters()), "lr": lr},
            {"params": [self.log_dual], "lr": self.options.dual_lr},
        ]

    def embed(self, obs: Tensor) -> Tensor:
        embedded: Tensor = self.latent(obs)
        return embedded

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        step, along = self._travel(batch)
        squares = step.square()
        size = squares.mean(dim=1) if self.options.step_size == "mean" else squares.sum(dim=1)
        unused = (1 - size).clamp_max(self.options.slack).mean()
        dual = self.log_dual.exp().detach()
        loss = -(along.mean() + dual * unused) + self.log_dual * unused.detach()
        return loss, {
            "representation/loss": loss.detach(),
            "representation/step_size": size.detach().mean(),
            "representation/dual": dual,
        }

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        return self._travel(batch)[1]

    def _travel(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Δ (B, dim), and its projection on the skill (B, 1)."""
        step = self.latent(batch.next_obs) - self.latent(batch.obs)
        return step, (step * self.skills.directions(batch.skill)).sum(dim=1, keepdim=True)

    @torch.no_grad()
    def goal_skill(self, obs: Tensor, goal: Tensor) -> Tensor:
        return self.skills.towards(self.latent(goal) - self.latent(obs))
