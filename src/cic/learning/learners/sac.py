"""SAC (Haarnoja et al. 2018, "Algorithms and Applications"): a squashed Gaussian policy with an entropy bonus.

    target       y = r + γ (min_k Q'_k(s', a') − α log π(a' | s')),  a' ~ π(· | s')
    critic       Σ_k mean (Q_k(s, a) − y)²
    actor        mean (α log π(a | s) − min_k Q_k(s, a)),  a = tanh(μ(s) + σ(s) ε)
    temperature  −log α · mean (log π(a | s) + target entropy)

Deviations from the paper: URLB's networks (both critics share a trunk) and n-step returns, as for every learner here;
the temperature's loss multiplies by log α instead of α, as in most implementations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics
from cic.learning.learners.base import EDGE, Learner, LearnerConfig, normal_like, register_learner
from cic.learning.networks import Actor, Critic
from cic.learning.optim import Loss

LOG_STD = (-5.0, 2.0)


@dataclass(frozen=True)
class SACConfig(LearnerConfig):
    alpha: float = 0.1
    """Initial temperature, the weight of the entropy."""
    tune_alpha: bool = True
    """Tune the temperature towards the target entropy; off keeps it fixed."""
    target_entropy: float = -1.0
    """Target entropy per dimension of the action."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.alpha > 0, f"alpha must be positive, not {self.alpha}")


@register_learner("sac")
class SAC(Learner):
    """Soft actor-critic with a tuned temperature (Haarnoja et al. 2018)."""

    Config = SACConfig
    config: SACConfig
    title = "SAC"

    def __init__(self, config: SACConfig, actor: nn.Module, critic: Critic) -> None:
        super().__init__(config, actor, critic)
        self.log_alpha = nn.Parameter(torch.tensor(math.log(config.alpha)))

    @classmethod
    def build(cls, config: SACConfig, input_dim: int, action_dim: int, make_critic: Callable[[], Critic]) -> SAC:
        return cls(config, Actor(input_dim, 2 * action_dim, config.hidden), make_critic())

    def mean_action(self, x: Tensor, actor: nn.Module | None = None) -> Tensor:
        mean, _ = (actor or self.actor)(x).chunk(2, dim=-1)
        return torch.tanh(mean)

    def act(self, x: Tensor, explore: bool, generator: torch.Generator) -> Tensor:
        mean, log_std = self._gaussian(x)
        raw = mean + log_std.exp() * normal_like(mean, generator) if explore else mean
        return raw.tanh().clamp(-EDGE, EDGE)

    def losses(self) -> dict[str, tuple[Loss, list[nn.Parameter]]]:
        return {
            "critic": (self.critic_loss, list(self.critic.parameters())),
            "actor": (self.actor_loss, list(self.actor.parameters())),
            "temperature": (self.temperature_loss, [self.log_alpha]),
        }

    def update(self, batch: Batch, generator: torch.Generator, *, actor: bool = True) -> Metrics:
        metrics = self.steps["critic"](batch, normal_like(batch.action, generator))
        if actor:
            metrics |= self.steps["actor"](batch, normal_like(batch.action, generator))
            if self.config.tune_alpha:
                metrics |= self.steps["temperature"](metrics["actor/entropy"], batch.action)
        self.update_targets(actor=actor)
        return metrics

    def critic_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Metrics]:
        with torch.no_grad():
            next_action, log_density = self._sample(batch.next_obs, noise)
            bonus = -self.log_alpha.exp() * log_density
        return self.critic.td_loss(self.target, batch, next_action, bonus)

    def actor_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Metrics]:
        action, log_density = self._sample(batch.obs, noise)
        value = self.critic(batch.obs, action, batch.skill).amin(dim=0)  # (B, 1)
        entropy = -self.log_alpha.exp().detach() * log_density.mean()
        loss = -value.mean() - entropy
        return loss, {"actor/loss": loss.detach(), "actor/entropy": -log_density.detach().mean()}

    def temperature_loss(self, entropy: Tensor, action: Tensor) -> tuple[Tensor, Metrics]:
        target = self.config.target_entropy * action.shape[1]
        loss = self.log_alpha * (entropy - target)
        return loss, {"actor/temperature": self.log_alpha.detach().exp()}

    def _gaussian(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(x).chunk(2, dim=-1)
        return mean, log_std.clamp(*LOG_STD)

    def _sample(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return an action (N, action) and its log density (N, 1), with the change of variables of tanh."""
        mean, log_std = self._gaussian(x)
        raw = mean + log_std.exp() * noise
        gaussian = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        slope = 2 * (math.log(2) - raw - F.softplus(-2 * raw))  # log(1 − tanh²), without cancellation
        return raw.tanh(), (gaussian - slope).sum(dim=-1, keepdim=True)
