"""DDPG (Lillicrap et al. 2016) with URLB's settings: twin critics, n-step returns, fixed exploration noise.

target  y = r + γ min_k Q'_k(s', a'),  a' = μ(s') + clipped noise, μ the *current* actor
critic  Σ_k mean (Q_k(s, a) − y)²
actor   −mean min_k Q_k(s, μ(s) + clipped noise), with the critic after its step

`saturation` adds weight · |that mean| · mean u² to the actor's loss, where μ = tanh u. Without it an actor can saturate
the tanh, where gradients vanish, and finetuning inherits such an actor. URLB has no such term.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics
from cic.learning.learners.base import (
    EDGE,
    Learner,
    LearnerConfig,
    normal_like,
    register_learner,
    straight_through_clamp,
)
from cic.learning.networks import Actor, Critic
from cic.learning.optim import Loss


@dataclass(frozen=True)
class DDPGConfig(LearnerConfig):
    noise: float = 0.2
    """Standard deviation of the exploration noise."""
    noise_clip: float = 0.3
    """Bound of the noise inside updates."""
    saturation: float = 0.0
    """Weight of the penalty on saturated actions, relative to the Q-value; 0 disables it, as in URLB."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.noise >= 0 and self.noise_clip >= 0, "noise and noise_clip must not be negative")
        require(self.saturation >= 0, f"saturation must not be negative, not {self.saturation}")


@register_learner("ddpg")
class DDPG(Learner):
    """Deep deterministic policy gradient (Lillicrap et al. 2016), as in URLB."""

    Config = DDPGConfig
    config: DDPGConfig
    title = "DDPG"

    @classmethod
    def build(cls, config: DDPGConfig, input_dim: int, action_dim: int, make_critic: Callable[[], Critic]) -> DDPG:
        return cls(config, Actor(input_dim, action_dim, config.hidden), make_critic())

    def mean_action(self, x: Tensor, actor: nn.Module | None = None) -> Tensor:
        action: Tensor = (actor or self.actor)(x).tanh()
        return action

    def act(self, x: Tensor, explore: bool, generator: torch.Generator) -> Tensor:
        action = self.mean_action(x)
        if explore and self.config.noise:
            action = action + self.config.noise * normal_like(action, generator)
        return action.clamp(-EDGE, EDGE)

    def losses(self) -> dict[str, tuple[Loss, list[nn.Parameter]]]:
        return {
            "critic": (self.critic_loss, list(self.critic.parameters())),
            "actor": (self.actor_loss, list(self.actor.parameters())),
        }

    def update(self, batch: Batch, generator: torch.Generator, *, actor: bool = True) -> Metrics:
        metrics = self.steps["critic"](batch, self._noise(batch.action, generator))
        if actor:
            metrics |= self.steps["actor"](batch, self._noise(batch.action, generator))
        self.update_targets(actor=actor)
        return metrics

    def critic_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Metrics]:
        with torch.no_grad():
            next_action = straight_through_clamp(self.actor(batch.next_obs).tanh() + noise)
        return self.critic.td_loss(self.target, batch, next_action, 0.0)

    def actor_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Metrics]:
        raw = self.actor(batch.obs)
        action = straight_through_clamp(raw.tanh() + noise)
        value = self.critic(batch.obs, action, batch.skill).amin(dim=0).mean()
        loss = -value
        if self.config.saturation:
            loss = loss + self.config.saturation * value.detach().abs() * raw.square().mean()
        return loss, {"actor/loss": loss.detach()}

    def _noise(self, action: Tensor, generator: torch.Generator) -> Tensor:
        clip = self.config.noise_clip
        return (self.config.noise * normal_like(action, generator)).clamp(-clip, clip)
