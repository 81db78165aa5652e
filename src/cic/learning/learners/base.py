"""What every learner must say: how it acts and which losses one update descends.

A learner is an actor, a critic and whatever follows them. It sees batches whose observations are what actor and critic
see (the skill included) and whose reward is what it should maximise; it knows nothing of where either came from.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from cic.core.config import require
from cic.core.errors import UserError, unknown
from cic.core.types import Batch, Metrics
from cic.learning.networks import Critic
from cic.learning.optim import Loss

EDGE = 1 - 1e-6  # actions stay inside (-1, 1), where tanh's inverse exists
Keep = Literal["trunk", "all", "none"]


@dataclass(frozen=True)
class LearnerConfig:
    """What all learners share."""

    hidden: int = 1024
    """Width H of every hidden layer."""
    batch: int = 1024
    """Transitions per update."""
    lr: float = 1e-4
    """Adam's learning rate."""
    gamma: float = 0.99
    """Discount."""
    nstep: int = 3
    """Steps of the n-step return; objectives see (s_t, s_{t+n})."""
    tau: float = 0.01
    """Share of the critic that the target takes over per update."""
    tau_alone: float = 0.1
    """The same in updates of the critic alone: a policy that does not move can be evaluated faster."""

    def __post_init__(self) -> None:
        require(self.hidden >= 1, f"hidden must be at least 1, not {self.hidden}")
        require(self.batch >= 2, f"batch must be at least 2, not {self.batch}")
        require(self.lr > 0, f"lr must be positive, not {self.lr}")
        require(0 <= self.gamma <= 1, f"gamma must lie in [0, 1], not {self.gamma}")
        require(self.nstep >= 1, f"nstep must be at least 1, not {self.nstep}")
        for name in ("tau", "tau_alone"):
            require(0 < getattr(self, name) <= 1, f"{name} must lie in (0, 1], not {getattr(self, name)}")


class Descend(Protocol):
    """One optimiser step on a loss of the learner's, by its name."""

    def __call__(self, name: str, *inputs: Any) -> Metrics: ...


class Learner(nn.Module):
    """Actor and critic; `target` follows the critic."""

    Config: ClassVar[type[LearnerConfig]] = LearnerConfig
    actor: nn.Module

    def __init__(self, config: LearnerConfig, actor: nn.Module, critic: Critic) -> None:
        super().__init__()
        self.config = config
        self.actor = actor
        self.critic = critic
        self.target = copy.deepcopy(critic).requires_grad_(False)
        self._followers: list[tuple[list[Tensor], list[Tensor]]] = [
            (list(self.target.parameters()), list(critic.parameters()))
        ]

    @classmethod
    @abstractmethod
    def build(cls, config: Any, input_dim: int, action_dim: int, make_critic: Callable[[], Critic]) -> Learner:
        """The learner with fresh weights, drawn from torch's global generator: the actor's first."""

    @abstractmethod
    def mean_action(self, x: Tensor, actor: nn.Module | None = None) -> Tensor:
        """(N, action): what the policy, or another actor of its kind, does without exploring."""

    @abstractmethod
    def act(self, x: Tensor, explore: bool, generator: torch.Generator) -> Tensor:
        """(N, action) in (-1, 1): the mean action, or one that explores."""

    @abstractmethod
    def losses(self) -> dict[str, tuple[Loss, list[nn.Parameter]]]:
        """Each loss by name, and the weights that it moves."""

    @abstractmethod
    def update(self, batch: Batch, descend: Descend, generator: torch.Generator, *, actor: bool = True) -> Metrics:
        """One update of everything, or of all but the actor."""

    @torch.no_grad()
    def inherit(self, weights: dict[str, Tensor], critic: Keep) -> None:
        """Take over a pre-trained learner's actor and as much of its critic as asked; targets follow."""
        self.actor.load_state_dict(_below("actor.", weights))
        if critic == "all":
            self.critic.load_state_dict(_below("critic.", weights))
        elif critic == "trunk":
            self.critic.trunk.load_state_dict(_below("critic.trunk.", weights))
        self.target.load_state_dict(self.critic.state_dict())

    def anchored(self, value: Tensor, action: Tensor, batch: Batch) -> Tensor:
        """The actor's loss: minus the value of its action, and a pull towards the action that the batch says to keep.

        The pull is in units of the value itself, so that it means the same for every reward.
        """
        if "anchor" not in batch.extras:
            return -value
        distance = (action - batch.extras["anchor"]).square().mean()
        return -value + batch.extras["pull"] * value.detach().abs() * distance

    @torch.no_grad()
    def follow(self, *, actor: bool) -> None:
        """Polyak averaging: every target moves by `tau` towards what it follows, faster while the actor stands still.

        A value that bootstraps over n steps arrives after some 1/tau · 1/(1 − γⁿ) updates, 3,300 by URLB's settings.
        """
        rate = self.config.tau if actor else self.config.tau_alone
        for targets, sources in self._followers:
            torch._foreach_lerp_(targets, sources, rate)


def _below(prefix: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def straight_through_clamp(action: Tensor) -> Tensor:
    """Inside (-1, 1), with gradients as if it had not been clamped."""
    return action + (action.clamp(-EDGE, EDGE) - action).detach()


def normal_like(action: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(action.shape, generator=generator, device=action.device)


# ---- the registry ----------------------------------------------------------------------------------------------

_REGISTRY: dict[str, type[Learner]] = {}
T = TypeVar("T", bound=type[Learner])


def register_learner(name: str) -> Callable[[T], T]:
    """Class decorator: `@register_learner("mine")` makes `--learner mine` work."""

    def add(cls: T) -> T:
        if name in _REGISTRY and _REGISTRY[name].__qualname__ != cls.__qualname__:
            raise UserError(f'learner "{name}" is registered already, by {_REGISTRY[name].__module__}')
        _REGISTRY[name] = cls
        return cls

    return add


def learners() -> dict[str, type[Learner]]:
    return dict(sorted(_REGISTRY.items()))


def get_learner(name: str) -> type[Learner]:
    if name not in _REGISTRY:
        raise unknown("learner", name, _REGISTRY)
    return _REGISTRY[name]
