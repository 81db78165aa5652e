"""Behaviour cloning (Pomerleau 1988) for stored data: imitate the actions, whatever their reward.

    actor   mean −log N(a; μ(s), σ²),  σ fixed

There is no value to learn, so the critic keeps its initial weights. It is the baseline of every offline method: a
learner that does not exceed it has only imitated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics
from cic.learning.learners.base import EDGE, Learner, LearnerConfig, normal_like, register_learner
from cic.learning.networks import Actor, Critic
from cic.learning.optim import Loss


@dataclass(frozen=True)
class BCConfig(LearnerConfig):
    noise: float = 0.2
    """σ, the standard deviation of the policy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.noise > 0, f"noise must be positive, not {self.noise}")


@register_learner("bc")
class BC(Learner):
    """Behaviour cloning with a Gaussian of fixed width (Pomerleau 1988)."""

    Config = BCConfig
    config: BCConfig
    title = "BC"
    offline = True

    @classmethod
    def build(cls, config: BCConfig, input_dim: int, action_dim: int, make_critic: Callable[[], Critic]) -> BC:
        return cls(config, Actor(input_dim, action_dim, config.hidden), make_critic())

    def mean_action(self, x: Tensor, actor: nn.Module | None = None) -> Tensor:
        action: Tensor = (actor or self.actor)(x).tanh()
        return action

    def act(self, x: Tensor, explore: bool, generator: torch.Generator) -> Tensor:
        action = self.mean_action(x)
        if explore:
            action = action + self.config.noise * normal_like(action, generator)
        return action.clamp(-EDGE, EDGE)

    def losses(self) -> dict[str, tuple[Loss, list[nn.Parameter]]]:
        return {"actor": (self.actor_loss, list(self.actor.parameters()))}

    def update(self, batch: Batch, generator: torch.Generator, *, actor: bool = True) -> Metrics:
        return self.steps["actor"](batch) if actor else {}

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        std = self.config.noise
        distance = (self.mean_action(batch.obs) - batch.action).square()  # (B, action)
        loss = (distance / (2 * std**2) + math.log(std) + 0.5 * math.log(2 * math.pi)).sum(dim=1).mean()
        return loss, {"actor/loss": loss.detach(), "actor/distance": distance.detach().mean()}
