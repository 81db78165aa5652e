"""TD3+BC (Fujimoto & Gu 2021) for stored data: maximise the value, and stay near the actions of the data.

    target  y = r + γ min_k Q'_k(s', a'),  a' = μ(s') + clipped noise
    critic  Σ_k mean (Q_k(s, a) − y)²
    actor   −λ mean min_k Q_k(s, μ(s) + clipped noise) + mean (μ(s) − a)²,  λ = α / mean |min_k Q_k|, a constant

Deviations from the paper, as in ExORL: no delay of the actor and no target actor; the actor maximises the minimum of
both values at an action with noise; observations are not standardised. URLB's networks (both critics share a trunk).
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
class TD3BCConfig(LearnerConfig):
    noise: float = 0.2
    """Standard deviation of the noise that smooths the policy in updates."""
    noise_clip: float = 0.3
    """Bound of that noise."""
    value_weight: float = 2.5
    """α, weight of the value relative to the distance from the actions of the data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.noise >= 0 and self.noise_clip >= 0, "noise and noise_clip must not be negative")
        require(self.value_weight >= 0, f"value_weight must not be negative, not {self.value_weight}")


@register_learner("td3bc")
class TD3BC(Learner):
    """TD3 with a behaviour cloning term (Fujimoto & Gu 2021)."""

    Config = TD3BCConfig
    config: TD3BCConfig
    title = "TD3+BC"
    offline = True

    @classmethod
    def build(cls, config: TD3BCConfig, input_dim: int, action_dim: int, make_critic: Callable[[], Critic]) -> TD3BC:
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
            next_action = straight_through_clamp(self.mean_action(batch.next_obs) + noise)
        return self.critic.td_loss(self.target, batch, next_action, 0.0)

    def actor_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Metrics]:
        mean = self.mean_action(batch.obs)
        value = self.critic(batch.obs, straight_through_clamp(mean + noise), batch.skill).amin(dim=0)  # (B, 1)
        weight = self.config.value_weight / value.detach().abs().mean().clamp(min=1e-6)
        distance = (mean - batch.action).square().mean()
        loss = distance - weight * value.mean()
        return loss, {"actor/loss": loss.detach(), "actor/distance": distance.detach()}

    def _noise(self, action: Tensor, generator: torch.Generator) -> Tensor:
        clip = self.config.noise_clip
        return (self.config.noise * normal_like(action, generator)).clamp(-clip, clip)
