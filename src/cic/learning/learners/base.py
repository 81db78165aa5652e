"""The base class of learners: how a policy acts, which losses train it, and their optimisers.

A learner holds an actor, a critic, their targets and an optimiser per loss. The observations of its batches are the
inputs of actor and critic, which include the skill; the reward is what it maximises. It does not depend on how either
was computed.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from cic.core.config import require
from cic.core.errors import UserError, unknown
from cic.core.setting_names import require_free_names
from cic.core.types import Batch, Metrics
from cic.learning.networks import Critic
from cic.learning.optim import Adam, GradientStep, Loss

EDGE = 1 - 1e-6  # largest absolute action: the inverse of tanh exists inside (-1, 1)
Keep = Literal["trunk", "all", "none"]


@dataclass(frozen=True)
class LearnerConfig:
    """Settings of every learner."""

    hidden: int = 1024
    """Width H of every hidden layer."""
    batch: int = 1024
    """Transitions per update."""
    lr: float = 1e-4
    """Adam's learning rate."""
    gamma: float = 0.99
    """Discount."""
    nstep: int = 3
    """Steps of the n-step return; objectives receive (s_t, s_{t+n})."""
    tau: float = 0.01
    """Polyak rate: fraction by which the target moves towards the critic per update."""
    tau_alone: float = 0.1
    """Polyak rate in updates that train only the critic: the value of a fixed policy can be learned faster."""

    def __post_init__(self) -> None:
        require(self.hidden >= 1, f"hidden must be at least 1, not {self.hidden}")
        require(self.batch >= 2, f"batch must be at least 2, not {self.batch}")
        require(self.lr > 0, f"lr must be positive, not {self.lr}")
        require(0 <= self.gamma <= 1, f"gamma must lie in [0, 1], not {self.gamma}")
        require(self.nstep >= 1, f"nstep must be at least 1, not {self.nstep}")
        for name in ("tau", "tau_alone"):
            require(0 < getattr(self, name) <= 1, f"{name} must lie in (0, 1], not {getattr(self, name)}")


class Learner(nn.Module):
    """Actor, critic, their targets and their optimisers. A subclass implements one algorithm."""

    Config: ClassVar[type[LearnerConfig]] = LearnerConfig
    title: ClassVar[str] = ""
    """The name in tables and figures; by default the registered name."""
    offline: ClassVar[bool] = False
    """Whether it learns a task from stored data only (`cic offline`)."""
    actor: nn.Module
    discrete: ClassVar[bool] = False
    """Whether its actions are discrete: one-hot vectors instead of numbers in [-1, 1]."""
    encoder_optimiser: Adam | None = None
    """Steps together with the critic's optimiser. The agent sets it if the critic's loss also trains the encoder."""

    def __init__(self, config: LearnerConfig, actor: nn.Module, critic: Critic) -> None:
        super().__init__()
        self.config = config
        self.actor = actor
        self.critic = critic
        self.target = copy.deepcopy(critic).requires_grad_(False)

    @classmethod
    @abstractmethod
    def build(cls, config: Any, input_dim: int, action_dim: int, make_critic: Callable[[], Critic]) -> Learner:
        """Create a learner. Weights are drawn from torch's global generator, the actor's first."""

    @abstractmethod
    def mean_action(self, x: Tensor, actor: nn.Module | None = None) -> Tensor:
        """(N, action): the action of the policy, or of another actor network, without exploration noise."""

    @abstractmethod
    def act(self, x: Tensor, explore: bool, generator: torch.Generator) -> Tensor:
        """(N, action) in (-1, 1), or one-hot: the mean action, or an action with exploration noise."""

    @abstractmethod
    def losses(self) -> dict[str, tuple[Loss, list[nn.Parameter]]]:
        """Return each loss by name, with the weights that it trains. One of them is `"critic"`."""

    @cached_property
    def steps(self) -> dict[str, GradientStep]:
        """The gradient step of each loss. Created on first use, when the weights are on their device."""
        more = {"critic": () if self.encoder_optimiser is None else (self.encoder_optimiser,)}
        return {
            name: GradientStep(loss, Adam([{"params": weights, "lr": self.config.lr}]), *more.get(name, ()))
            for name, (loss, weights) in self.losses().items()
        }

    @abstractmethod
    def update(self, batch: Batch, generator: torch.Generator, *, actor: bool = True) -> Metrics:
        """Take one step of every optimiser and move the targets. With `actor=False` the policy does not change."""

    @torch.no_grad()
    def inherit(self, weights: dict[str, Tensor], critic: Keep) -> None:
        """Load a pre-trained actor and the given part of the critic; the target becomes a copy of the critic."""
        self.actor.load_state_dict(_below("actor.", weights))
        if critic == "all":
            self.critic.load_state_dict(_below("critic.", weights))
        elif critic == "trunk":
            self.critic.trunk.load_state_dict(_below("critic.trunk.", weights))
        self.target.load_state_dict(self.critic.state_dict())

    def targets(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return each target network with its source."""
        return [(self.target, self.critic)]

    @cached_property
    def _target_weights(self) -> list[tuple[list[Tensor], list[Tensor]]]:
        return [(list(target.parameters()), list(source.parameters())) for target, source in self.targets()]

    @torch.no_grad()
    def update_targets(self, *, actor: bool) -> None:
        """Polyak averaging: move every target by `tau` towards its source, or by `tau_alone` without the actor.

        Values need about 1/tau · 1/(1 − γⁿ) updates to propagate through n-step bootstrapping: 3,300 in URLB.
        """
        rate = self.config.tau if actor else self.config.tau_alone
        for targets, sources in self._target_weights:
            torch._foreach_lerp_(targets, sources, rate)


def _below(prefix: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def straight_through_clamp(action: Tensor) -> Tensor:
    """Clamp to (-1, 1), with the gradient of the identity."""
    return action + (action.clamp(-EDGE, EDGE) - action).detach()


def normal_like(action: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(action.shape, generator=generator, device=action.device)


# ---- the registry ----------------------------------------------------------------------------------------------

_REGISTRY: dict[str, type[Learner]] = {}
T = TypeVar("T", bound=type[Learner])


def register_learner(name: str) -> Callable[[T], T]:
    """Class decorator: `@register_learner("mine")` makes the learner available as `learner="mine"`."""

    def add(cls: T) -> T:
        if name in _REGISTRY and _REGISTRY[name].__qualname__ != cls.__qualname__:
            raise UserError(f'learner "{name}" is registered already, by {_REGISTRY[name].__module__}')
        require_free_names(f'learner "{name}"', cls.Config)
        _REGISTRY[name] = cls
        return cls

    return add


def learners(*, offline: bool = False) -> dict[str, type[Learner]]:
    """Return the learners by name: those for any reward, or those for stored data only."""
    return {name: cls for name, cls in sorted(_REGISTRY.items()) if cls.offline == offline}


def learners_for(choices: Sequence[int]) -> list[str]:
    """Return the names of the learners for discrete or continuous actions."""
    return [name for name, cls in learners().items() if cls.discrete == bool(choices)]


def get_learner(name: str) -> type[Learner]:
    if name not in _REGISTRY:
        raise unknown("learner", name, _REGISTRY)
    return _REGISTRY[name]
