"""CQL, conservative Q-learning (Kumar et al. 2020) for stored data: values of actions that are not in them are lowered.

    target       y = r + γ min_k Q'_k(s', a'),  a' ~ π(· | s')
    critic       Σ_k [mean (Q_k(s, a) − y)² + α mean (log Σ_j exp Q_k(s, a_j) − Q_k(s, a))]
                 over a_j: N uniform actions, N of π(· | s), N of π(· | s'), and the action of the data
    actor        mean (η log π(a | s) − min_k Q_k(s, a)),  a = tanh(μ(s) + σ(s) ε)
    temperature  −log η · mean (log π(a | s) + target entropy)

As in ExORL: the target has no entropy term, the samples have no importance weights, and α is fixed (no Lagrange
multiplier). URLB's networks (both critics share a trunk).
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

LOG_STD = (-10.0, 2.0)


@dataclass(frozen=True)
class CQLConfig(LearnerConfig):
    conservatism: float = 0.01
    """α, weight of the loss that lowers the values of actions that are not in the data."""
    action_samples: int = 3
    """N, sampled actions of each kind: uniform, of the policy at s, and of the policy at s'."""
    alpha: float = 1.0
    """Initial temperature η, the weight of the entropy in the actor's loss."""
    target_entropy: float = -1.0
    """Target entropy per dimension of the action."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.conservatism >= 0, f"conservatism must not be negative, not {self.conservatism}")
        require(self.action_samples >= 1, f"action_samples must be at least 1, not {self.action_samples}")
        require(self.alpha > 0, f"alpha must be positive, not {self.alpha}")


@register_learner("cql")
class CQL(Learner):
    """Conservative Q-learning on a squashed Gaussian policy (Kumar et al. 2020)."""

    Config = CQLConfig
    config: CQLConfig
    title = "CQL"
    offline = True

    def __init__(self, config: CQLConfig, actor: nn.Module, critic: Critic) -> None:
        super().__init__(config, actor, critic)
        self.log_alpha = nn.Parameter(torch.tensor(math.log(config.alpha)))

    @classmethod
    def build(cls, config: CQLConfig, input_dim: int, action_dim: int, make_critic: Callable[[], Critic]) -> CQL:
        return cls(config, Actor(input_dim, 2 * action_dim, config.hidden), make_critic())

    def mean_action(self, x: Tensor, actor: nn.Module | None = None) -> Tensor:
        mean, _ = (actor or self.actor)(x).chunk(2, dim=-1)
        return torch.tanh(mean)

    def act(self, x: Tensor, explore: bool, generator: torch.Generator) -> Tensor:
        action = self.mean_action(x)
        if explore:
            action, _ = self._sample(x, normal_like(action, generator))
        return action.clamp(-EDGE, EDGE)

    def losses(self) -> dict[str, tuple[Loss, list[nn.Parameter]]]:
        return {
            "critic": (self.critic_loss, list(self.critic.parameters())),
            "actor": (self.actor_loss, list(self.actor.parameters())),
            "temperature": (self.temperature_loss, [self.log_alpha]),
        }

    def update(self, batch: Batch, generator: torch.Generator, *, actor: bool = True) -> Metrics:
        action, count = batch.action, self.config.action_samples
        repeated = action.expand(count, *action.shape)
        uniform = torch.rand(repeated.shape, generator=generator, device=action.device) * 2 - 1
        noise, *sampled = (normal_like(like, generator) for like in (action, repeated, repeated))
        metrics = self.steps["critic"](batch, noise, uniform, *sampled)
        if actor:
            metrics |= self.steps["actor"](batch, normal_like(action, generator))
            metrics |= self.steps["temperature"](metrics["actor/entropy"], action)
        self.update_targets(actor=actor)
        return metrics

    def critic_loss(
        self, batch: Batch, noise: Tensor, uniform: Tensor, here: Tensor, there: Tensor
    ) -> tuple[Tensor, Metrics]:
        """`uniform` (N, B, action) are actions; `here` and `there` are the noises of the policy's at s and s'."""
        with torch.no_grad():
            next_action, _ = self._sample(batch.next_obs, noise)
            sampled = [uniform, self._sample(batch.obs, here)[0], self._sample(batch.next_obs, there)[0]]
            actions = torch.cat([*sampled, batch.action[None]])  # (3N + 1, B, action)
        loss, metrics = self.critic.td_loss(self.target, batch, next_action, 0.0)
        count = len(actions)
        x, skill = (part.repeat(count, 1) for part in (batch.obs, batch.skill))
        q = self.critic(x, actions.flatten(0, 1), skill).view(2, count, -1)  # (2, 3N + 1, B)
        gap = (q.logsumexp(dim=1) - q[:, -1]).mean(dim=1).sum()
        loss = loss + self.config.conservatism * gap
        return loss, metrics | {"critic/loss": loss.detach(), "critic/gap": gap.detach()}

    def actor_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Metrics]:
        action, log_density = self._sample(batch.obs, noise)
        value = self.critic(batch.obs, action, batch.skill).amin(dim=0)  # (B, 1)
        loss = (self.log_alpha.exp().detach() * log_density - value).mean()
        return loss, {"actor/loss": loss.detach(), "actor/entropy": -log_density.detach().mean()}

    def temperature_loss(self, entropy: Tensor, action: Tensor) -> tuple[Tensor, Metrics]:
        target = self.config.target_entropy * action.shape[1]
        loss = self.log_alpha * (entropy - target)
        return loss, {"actor/temperature": self.log_alpha.detach().exp()}

    def _sample(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions (…, N, action) and their log densities (…, N, 1), with the change of variables of tanh."""
        mean, log_std = self.actor(x).chunk(2, dim=-1)
        log_std = log_std.clamp(*LOG_STD)
        raw = mean + log_std.exp() * noise
        gaussian = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        slope = 2 * (math.log(2) - raw - F.softplus(-2 * raw))  # log(1 − tanh²), without cancellation
        return raw.tanh(), (gaussian - slope).sum(dim=-1, keepdim=True)
