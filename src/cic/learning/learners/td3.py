"""TD3 (Fujimoto et al. 2018): a target policy with smoothing noise, and delayed updates of the actor.

    target  y = r + γ min_k Q'_k(s', a'),  a' = μ'(s') + noise clipped to ±c, μ' the *target* actor
    critic  Σ_k mean (Q_k(s, a) − y)²
    actor   −mean Q_1(s, μ(s)), every `actor_every` updates, and with it both targets

With `actor_value="min"` the actor maximises min_k Q_k instead, as in ExORL, whose TD3 also has `actor_every=1`.

Deviations from the paper: URLB's networks (both critics share a trunk) and n-step returns, as for every learner here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics
from cic.learning.learners.base import EDGE, Keep, Learner, LearnerConfig, normal_like, register_learner
from cic.learning.networks import Actor, Critic
from cic.learning.optim import Loss


@dataclass(frozen=True)
class TD3Config(LearnerConfig):
    noise: float = 0.2
    """Standard deviation of the exploration noise."""
    target_noise: float = 0.2
    """Standard deviation of the noise that smooths the target policy."""
    noise_clip: float = 0.5
    """Bound of the smoothing noise."""
    actor_every: int = 2
    """Updates of the critic for each of the actor."""
    actor_value: Literal["first", "min"] = "first"
    """The value that the actor maximises: the first critic's (TD3), or the minimum of both (ExORL)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(min(self.noise, self.target_noise, self.noise_clip) >= 0, "noises must not be negative")
        require(self.actor_every >= 1, f"actor_every must be at least 1, not {self.actor_every}")


@register_learner("td3")
class TD3(Learner):
    """Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018)."""

    Config = TD3Config
    config: TD3Config
    title = "TD3"

    def __init__(self, config: TD3Config, actor: nn.Module, critic: Critic) -> None:
        super().__init__(config, actor, critic)
        self.target_actor = copy.deepcopy(actor).requires_grad_(False)
        self.updates = 0

    @classmethod
    def build(cls, config: TD3Config, input_dim: int, action_dim: int, make_critic: Callable[[], Critic]) -> TD3:
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

    def targets(self) -> list[tuple[nn.Module, nn.Module]]:
        return [*super().targets(), (self.target_actor, self.actor)]

    def update(self, batch: Batch, generator: torch.Generator, *, actor: bool = True) -> Metrics:
        clip = self.config.noise_clip
        noise = (self.config.target_noise * normal_like(batch.action, generator)).clamp(-clip, clip)
        metrics = self.steps["critic"](batch, noise)
        self.updates += 1
        if self.updates % self.config.actor_every == 0:
            if actor:
                metrics |= self.steps["actor"](batch)
            self.update_targets(actor=actor)
        return metrics

    def critic_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Metrics]:
        with torch.no_grad():
            next_action = (self.target_actor(batch.next_obs).tanh() + noise).clamp(-EDGE, EDGE)
        return self.critic.td_loss(self.target, batch, next_action, 0.0)

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        action = self.mean_action(batch.obs)
        values = self.critic(batch.obs, action, batch.skill)
        loss = -(values.amin(dim=0) if self.config.actor_value == "min" else values[0]).mean()
        return loss, {"actor/loss": loss.detach()}

    def get_extra_state(self) -> Tensor:
        """The number of updates, for checkpoints. A buffer would have to be read from the device in each update."""
        return torch.tensor(self.updates)

    def set_extra_state(self, state: Tensor) -> None:
        self.updates = int(state)

    def inherit(self, weights: dict[str, Tensor], critic: Keep) -> None:
        super().inherit(weights, critic)
        self.target_actor.load_state_dict(self.actor.state_dict())
