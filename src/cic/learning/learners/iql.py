"""IQL, implicit Q-learning (Kostrikov et al. 2022) for stored data: it never evaluates an action that is not in them.

    value   mean |τ − 1[u < 0]| u²,  u = min_k Q'_k(s, a) − V(s): V tends to the best actions of the data as τ → 1
    critic  Σ_k mean (Q_k(s, a) − r − γ V(s'))²
    actor   mean min(exp(β A), 100) ‖μ(s) − a‖² / 2σ²,  A = min_k Q'_k(s, a) − V(s)

Deviations from the paper: the policy's standard deviation σ is fixed, which changes only the scale of the actor's loss;
URLB's networks (both critics share a trunk); the learning rate has no schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics
from cic.learning.learners.base import EDGE, Learner, LearnerConfig, normal_like, register_learner
from cic.learning.networks import Actor, Critic, mlp, orthogonal_init, trunk
from cic.learning.optim import Loss

LARGEST_WEIGHT = 100.0


@dataclass(frozen=True)
class IQLConfig(LearnerConfig):
    noise: float = 0.2
    """σ, the standard deviation of the policy."""
    quantile: float = 0.7
    """τ of the expectile regression: 0.5 is the mean over the actions of the data, 1 their best."""
    greediness: float = 3.0
    """β, how strongly the actor prefers actions with an advantage; 0 is behaviour cloning."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.noise > 0, f"noise must be positive, not {self.noise}")
        require(0 < self.quantile < 1, f"quantile must lie in (0, 1), not {self.quantile}")
        require(self.greediness >= 0, f"greediness must not be negative, not {self.greediness}")


@register_learner("iql")
class IQL(Learner):
    """Implicit Q-learning with advantage-weighted regression (Kostrikov et al. 2022)."""

    Config = IQLConfig
    config: IQLConfig
    title = "IQL"
    offline = True

    def __init__(self, config: IQLConfig, actor: nn.Module, critic: Critic, input_dim: int) -> None:
        super().__init__(config, actor, critic)
        self.value = nn.Sequential(trunk(input_dim, config.hidden), mlp(config.hidden, config.hidden, 1))
        self.value.apply(orthogonal_init)

    @classmethod
    def build(cls, config: IQLConfig, input_dim: int, action_dim: int, make_critic: Callable[[], Critic]) -> IQL:
        return cls(config, Actor(input_dim, action_dim, config.hidden), make_critic(), input_dim)

    def mean_action(self, x: Tensor, actor: nn.Module | None = None) -> Tensor:
        action: Tensor = (actor or self.actor)(x).tanh()
        return action

    def act(self, x: Tensor, explore: bool, generator: torch.Generator) -> Tensor:
        action = self.mean_action(x)
        if explore:
            action = action + self.config.noise * normal_like(action, generator)
        return action.clamp(-EDGE, EDGE)

    def losses(self) -> dict[str, tuple[Loss, list[nn.Parameter]]]:
        return {
            "value": (self.value_loss, list(self.value.parameters())),
            "critic": (self.critic_loss, list(self.critic.parameters())),
            "actor": (self.actor_loss, list(self.actor.parameters())),
        }

    def update(self, batch: Batch, generator: torch.Generator, *, actor: bool = True) -> Metrics:
        metrics = self.steps["value"](batch) | self.steps["critic"](batch)
        if actor:
            metrics |= self.steps["actor"](batch)
        self.update_targets(actor=actor)
        return metrics

    def value_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        error = self._data_value(batch) - self.value(batch.obs)
        weight = torch.where(error < 0, 1 - self.config.quantile, self.config.quantile)
        loss = (weight * error.square()).mean()
        return loss, {"value/loss": loss.detach()}

    def critic_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        with torch.no_grad():
            goal = batch.reward + batch.discount * self.value(batch.next_obs)
        q = self.critic(batch.obs, batch.action, batch.skill)  # (2, B, 1)
        loss = (q - goal).square().mean(dim=(1, 2)).sum()
        return loss, {"critic/loss": loss.detach(), "critic/q": q.detach().mean(), "critic/target": goal.mean()}

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        with torch.no_grad():
            advantage = self._data_value(batch) - self.value(batch.obs)
            weight = (self.config.greediness * advantage).exp().clamp(max=LARGEST_WEIGHT)  # (B, 1)
        distance = (self.mean_action(batch.obs) - batch.action).square().sum(dim=1, keepdim=True)
        loss = (weight * distance).mean() / (2 * self.config.noise**2)
        return loss, {"actor/loss": loss.detach(), "actor/advantage": advantage.mean()}

    @torch.no_grad()
    def _data_value(self, batch: Batch) -> Tensor:
        """(B, 1): the smaller target value of the actions in the data."""
        value: Tensor = self.target(batch.obs, batch.action, batch.skill).amin(dim=0)
        return value
