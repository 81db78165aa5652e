"""VIC, variational intrinsic control (Gregor et al. 2016, the explicit algorithm): options that can be inferred from
their last state.

    loss   = cross-entropy of q(z | s_0, s_f),  s_0 the first and s_f the last state of the skill
    reward = log q(z | s_0, s_f) − log p(z) at the skill's last step, 0 before it

p(z) = 1/n. A skill terminates: its last step has discount 0. In the paper, options have a termination action, and
policies are trained by policy gradients on grid worlds and small scenes. Its second, implicit algorithm is biased in
stochastic environments (Kwon 2021).

Deviations: URLB's learner on replayed steps; skills last a fixed number of steps instead of choosing when to
terminate; the prior p(z | s_0) stays uniform instead of being trained by REINFORCE; the classifier is also trained on
the latest state of unfinished skills.
"""

from __future__ import annotations

import math
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
class VICOptions:
    skill_dim: int = 16
    """Number of skills."""
    skill_every: int = 50
    """Steps after which a skill ends."""

    def __post_init__(self) -> None:
        require(self.skill_dim >= 2, f"skill_dim must be at least 2, not {self.skill_dim}")
        require(self.skill_every >= 1, f"skill_every must be at least 1, not {self.skill_every}")


@register("vic")
class VIC(Objective):
    """A classifier of the skill from its first and last state (Gregor et al. 2016)."""

    Options = VICOptions
    title = "VIC"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"urlb": {}}
    options: VICOptions

    def __init__(self, spaces: Spaces, hidden: int, options: VICOptions) -> None:
        super().__init__(spaces, hidden, options)
        self.classifier = mlp(2 * spaces.obs, hidden, hidden, options.skill_dim)
        self.apply(orthogonal_init)

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace("onehot", self.options.skill_dim, self.options.skill_every)

    @property
    def needs(self) -> Needs:
        return Needs(nstep=1, skill_start=True, path=2)

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        return batch._replace(discount=batch.discount * (1 - batch.extras["skill_end"]))

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        loss = self._surprise(batch.extras["path"][:, 0], batch.extras["path"][:, -1], batch.skill).mean()
        return loss, {"representation/loss": loss.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        surprise = self._surprise(batch.extras["first_obs"], batch.next_obs, batch.skill)
        return (math.log(self.options.skill_dim) - surprise).unsqueeze(1) * batch.extras["skill_end"]

    @torch.no_grad()
    def confidence(self, batch: Batch) -> Tensor:
        return (-self._surprise(batch.extras["first_obs"], batch.next_obs, batch.skill)).exp()[:, None]

    def _surprise(self, first: Tensor, last: Tensor, skill: Tensor) -> Tensor:
        """(B,): −log q(z | s_0, s_f)"""
        logits = self.classifier(torch.cat([first, last], dim=1))
        return F.cross_entropy(logits, skill.argmax(dim=1), reduction="none")
