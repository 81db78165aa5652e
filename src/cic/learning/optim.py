"""Optimiser steps on losses. All gradients are computed here, so this is also where `torch.compile` is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam

from cic.core.types import Metrics
from cic.learning.compilation import Compiled

Loss = Callable[..., tuple[Tensor, Metrics]]
Gradients = tuple[Tensor | None, ...]


class Moments(NamedTuple):
    """Adam's state of one weight."""

    step: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor


class Adam:
    """Adam (Kingma & Ba 2015) by torch's functional form and fused kernel; gradients are passed as arguments.

    `groups` are `{"params": [...], "lr": ...}`, as `torch.optim.Adam` takes them. That class costs 3 % of a laptop
    update (hooks, `.grad`, lists built at each step) and imports torch's compiler at its first step (0.8 s).
    """

    def __init__(self, groups: Iterable[dict[str, Any]]) -> None:
        self._groups = [(float(group["lr"]), list(group["params"])) for group in groups]
        self.weights: list[Tensor] = [weight for _, weights in self._groups for weight in weights]
        self._moments = [
            Moments(torch.zeros((), device=weight.device), torch.zeros_like(weight), torch.zeros_like(weight))
            for weight in self.weights
        ]

    @torch.no_grad()
    def step(self, gradients: Gradients) -> None:
        """Take one step. A weight whose gradient is None keeps its value and its step count."""
        first = 0
        for lr, weights in self._groups:
            members = range(first, first + len(weights))
            first += len(weights)
            used = [index for index in members if gradients[index] is not None]
            moments = [self._moments[index] for index in used]
            adam(
                [self.weights[index] for index in used],
                [gradient.contiguous() for index in used if (gradient := gradients[index]) is not None],
                [moment.exp_avg for moment in moments],
                [moment.exp_avg_sq for moment in moments],
                [],
                [moment.step for moment in moments],
                fused=True,
                lr=lr,
                beta1=0.9,
                beta2=0.999,
                eps=1e-8,
                weight_decay=0.0,
                amsgrad=False,
                maximize=False,
            )

    def state(self) -> dict[str, Tensor]:
        """Return step count and moments as `"<index of the weight>.<name>"`; they share memory with the optimiser."""
        return {
            f"{index}.{name}": value
            for index, moments in enumerate(self._moments)
            for name, value in moments._asdict().items()
        }

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        """Copy a state that `state` returned, also one from another device."""
        for name, value in self.state().items():
            if state[name].shape != value.shape:
                raise ValueError(f"{name} is {tuple(state[name].shape)}, expected {tuple(value.shape)}")
            value.copy_(state[name])


class GradientStep:
    """A loss and the optimisers of the weights that it trains; a call takes one step.

    The loss is a deterministic function of its inputs and the weights: random numbers are inputs. Gradients are
    computed for these weights alone, for example none for the critic's weights in the actor's step.
    """

    def __init__(self, loss: Loss, *optimisers: Adam) -> None:
        self._loss, self.optimisers = loss, optimisers
        self._weights = [weight for optimiser in optimisers for weight in optimiser.weights]
        self._gradients: Callable[..., tuple[Gradients, Metrics]] = self._autograd

    def __call__(self, *inputs: Any) -> Metrics:
        gradients, metrics = self._gradients(*inputs)
        for optimiser in self.optimisers:
            count = len(optimiser.weights)
            optimiser.step(gradients[:count])
            gradients = gradients[count:]
        return metrics

    def _autograd(self, *inputs: Any) -> tuple[Gradients, Metrics]:
        loss, metrics = self._loss(*inputs)
        return torch.autograd.grad(loss, self._weights, allow_unused=True), metrics

    def compile(self, device: torch.device, siblings: list[Compiled]) -> None:
        """Compute gradients with `torch.compile` from now on: equal to within rounding, and faster."""
        self._gradients = Compiled(self._autograd, device, siblings)

    @property
    def compiled(self) -> Compiled | None:
        return self._gradients if isinstance(self._gradients, Compiled) else None
