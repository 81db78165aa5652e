"""DQN (Mnih et al. 2015) for discrete actions, as Double DQN (van Hasselt et al. 2016) with twin critics.

    target  y = r + γ min_k Q'_k(s', a'),  a' = argmax_a min_k Q_k(s', a)
    critic  Σ_k mean (Q_k(s, a) − y)²
    policy  argmax_a min_k Q_k(s, a); with probability `epsilon` a uniform random action

The actor is a copy of the critic that is renewed after each update. Updates of the critic alone therefore evaluate a
fixed policy, and a finetuning keeps the pre-trained policy while it replaces heads of the critic. An action of several
choices (MultiDiscrete) has the mean of their values, as in DecQN (Seyde et al. 2023).

Deviations from the papers: URLB's networks (both critics share a trunk), n-step returns and Polyak averaging, as for
every learner here; squared errors instead of Huber's; a constant `epsilon`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics
from cic.learning.choices import best, gumbel
from cic.learning.learners.base import Learner, LearnerConfig, register_learner
from cic.learning.networks import Critic
from cic.learning.optim import Loss


@dataclass(frozen=True)
class DQNConfig(LearnerConfig):
    epsilon: float = 0.1
    """Probability of a random action while exploring."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.epsilon <= 1, f"epsilon must lie in [0, 1], not {self.epsilon}")


class Greedy(nn.Module):
    """The smaller Q-value (N, choices) of every choice."""

    def __init__(self, critic: Critic) -> None:
        super().__init__()
        self.critic = copy.deepcopy(critic).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.critic.values(x).amin(dim=0)


@register_learner("dqn")
class DQN(Learner):
    """Double deep Q-network with twin critics (Mnih et al. 2015), for discrete actions."""

    Config = DQNConfig
    config: DQNConfig
    discrete = True

    @classmethod
    def build(cls, config: DQNConfig, input_dim: int, action_dim: int, make_critic: Callable[[], Critic]) -> DQN:
        critic = make_critic()
        return cls(config, Greedy(critic), critic)

    def mean_action(self, x: Tensor, actor: nn.Module | None = None) -> Tensor:
        return best((actor or self.actor)(x), self.critic.choices)

    def act(self, x: Tensor, explore: bool, generator: torch.Generator) -> Tensor:
        action = self.mean_action(x)
        if explore and self.config.epsilon:
            chance = torch.rand(len(x), 1, generator=generator, device=x.device)
            drawn = best(gumbel(action, generator), self.critic.choices)
            action = torch.where(chance < self.config.epsilon, drawn, action)
        return action

    def losses(self) -> dict[str, tuple[Loss, list[nn.Parameter]]]:
        return {"critic": (self.critic_loss, list(self.critic.parameters()))}

    def update(self, batch: Batch, generator: torch.Generator, *, actor: bool = True) -> Metrics:
        metrics = self.steps["critic"](batch)
        if actor:
            with torch.no_grad():
                torch._foreach_copy_(list(self.actor.parameters()), list(self.critic.parameters()))
        self.update_targets(actor=actor)
        return metrics

    def critic_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        with torch.no_grad():
            next_action = self.mean_action(batch.next_obs)
        return self.critic.td_loss(self.target, batch, next_action, 0.0)
