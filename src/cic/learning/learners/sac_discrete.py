"""SAC for discrete actions (Christodoulou 2019): a categorical policy with an entropy bonus.

    target       y = r + γ (min_k E_{a'~π} Q'_k(s', a') + α H(π(· | s')))
    critic       Σ_k mean (Q_k(s, a) − y)²
    actor        −mean (min_k E_{a~π} Q_k(s, a) + α H(π(· | s)))
    temperature  log α · mean (H(π(· | s)) − target entropy)

Expectations and entropies are sums over all actions. An action of several choices (MultiDiscrete) has an independent
distribution for each, and the mean of their values, as in DecQN (Seyde et al. 2023).

Deviations from the paper: the minimum is of expected values instead of the values of each action, so that the critic of
every objective can be used; a lower target entropy, relative to that of uniform actions; URLB's networks and n-step
returns, as for every learner here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics
from cic.learning.choices import best, gumbel, log_probabilities
from cic.learning.learners.base import Learner, LearnerConfig, register_learner
from cic.learning.networks import Actor, Critic
from cic.learning.optim import Loss


@dataclass(frozen=True)
class SACDiscreteConfig(LearnerConfig):
    alpha: float = 0.1
    """Initial temperature, the weight of the entropy."""
    tune_alpha: bool = True
    """Tune the temperature towards the target entropy; off keeps it fixed."""
    entropy_share: float = 0.5
    """Target entropy, as a share of the entropy of uniform random actions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.alpha > 0, f"alpha must be positive, not {self.alpha}")
        require(0 <= self.entropy_share < 1, f"entropy_share must lie in [0, 1), not {self.entropy_share}")


@register_learner("sac_discrete")
class SACDiscrete(Learner):
    """Soft actor-critic with a categorical policy (Christodoulou 2019), for discrete actions."""

    Config = SACDiscreteConfig
    config: SACDiscreteConfig
    discrete = True

    def __init__(self, config: SACDiscreteConfig, actor: nn.Module, critic: Critic) -> None:
        super().__init__(config, actor, critic)
        self.log_alpha = nn.Parameter(torch.tensor(math.log(config.alpha)))

    @classmethod
    def build(
        cls, config: SACDiscreteConfig, input_dim: int, action_dim: int, make_critic: Callable[[], Critic]
    ) -> SACDiscrete:
        return cls(config, Actor(input_dim, action_dim, config.hidden), make_critic())

    def mean_action(self, x: Tensor, actor: nn.Module | None = None) -> Tensor:
        return best((actor or self.actor)(x), self.critic.choices)

    def act(self, x: Tensor, explore: bool, generator: torch.Generator) -> Tensor:
        logits: Tensor = self.actor(x)
        return best(logits + gumbel(logits, generator) if explore else logits, self.critic.choices)

    def losses(self) -> dict[str, tuple[Loss, list[nn.Parameter]]]:
        return {
            "critic": (self.critic_loss, list(self.critic.parameters())),
            "actor": (self.actor_loss, list(self.actor.parameters())),
            "temperature": (self.temperature_loss, [self.log_alpha]),
        }

    def update(self, batch: Batch, generator: torch.Generator, *, actor: bool = True) -> Metrics:
        metrics = self.steps["critic"](batch)
        if actor:
            metrics |= self.steps["actor"](batch)
            if self.config.tune_alpha:
                metrics |= self.steps["temperature"](metrics["actor/entropy"])
        self.update_targets(actor=actor)
        return metrics

    def critic_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        with torch.no_grad():
            probabilities, entropy = self._policy(batch.next_obs)
            bonus = self.log_alpha.exp() * entropy
        return self.critic.td_loss(self.target, batch, probabilities, bonus)

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        probabilities, entropy = self._policy(batch.obs)
        value = self.critic(batch.obs, probabilities, batch.skill).amin(dim=0)  # (B, 1)
        loss = -(value + self.log_alpha.exp().detach() * entropy).mean()
        return loss, {"actor/loss": loss.detach(), "actor/entropy": entropy.detach().mean()}

    def temperature_loss(self, entropy: Tensor) -> tuple[Tensor, Metrics]:
        target = self.config.entropy_share * sum(math.log(size) for size in self.critic.choices)
        loss = self.log_alpha * (entropy - target)
        return loss, {"actor/temperature": self.log_alpha.detach().exp()}

    def _policy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities (N, action) of all choices and the entropy (N, 1)."""
        logs = log_probabilities(self.actor(x), self.critic.choices)
        probabilities = logs.exp()
        return probabilities, -(probabilities * logs).sum(dim=-1, keepdim=True)
