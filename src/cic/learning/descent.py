"""Gradient descent on a loss: the one place that steps optimisers, and the seam where `torch.compile` enters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from cic.core.types import Metrics
from cic.learning.compilation import Compiled

Loss = Callable[..., tuple[Tensor, Metrics]]
Gradients = tuple[Tensor | None, ...]


def adam(groups: Iterable[dict[str, Any]]) -> torch.optim.Adam:
    """Adam (Kingma & Ba 2015) with β = (0.9, 0.999) and ε = 1e-8, in torch's fused kernel."""
    return torch.optim.Adam(groups, fused=True)


class Descent:
    """A loss and the optimisers of the weights that it moves.

    The loss is a pure function of its inputs and the weights: what is random comes in. Gradients are asked for by name,
    so none are made for weights that it does not move (the critic's in the actor's step).
    """

    def __init__(self, loss: Loss, *optimisers: torch.optim.Adam) -> None:
        self._loss, self._optimisers = loss, optimisers
        self._weights = [p for o in optimisers for group in o.param_groups for p in group["params"]]
        self._gradients: Callable[..., tuple[Gradients, Metrics]] = self._by_autograd

    def step(self, *inputs: Any) -> Metrics:
        gradients, metrics = self._gradients(*inputs)
        for weight, gradient in zip(self._weights, gradients, strict=True):
            # None where the loss does not depend on it: such a weight stays as it is. The fused kernel reads memory in
            # the weight's order, whatever the gradient's strides say.
            weight.grad = None if gradient is None else gradient.contiguous()
        for optimiser in self._optimisers:
            optimiser.step()
        return metrics

    def _by_autograd(self, *inputs: Any) -> tuple[Gradients, Metrics]:
        loss, metrics = self._loss(*inputs)
        return torch.autograd.grad(loss, self._weights, allow_unused=True), metrics

    def compile(self, device: torch.device, siblings: list[Compiled]) -> None:
        """From now on by `torch.compile`: the same numbers to within rounding, sooner."""
        self._gradients = Compiled(self._by_autograd, device, siblings)


def adam_state(optimiser: torch.optim.Adam) -> dict[str, Tensor]:
    """`"3.exp_avg"` and so on: counter and moments of every weight that has been moved, by its place."""
    weights = [p for group in optimiser.param_groups for p in group["params"]]
    slots = [(place, optimiser.state[weight]) for place, weight in enumerate(weights) if weight in optimiser.state]
    return {f"{place}.{name}": value for place, slot in slots for name, value in slot.items()}


def restore_adam(optimiser: torch.optim.Adam, state: dict[str, Tensor]) -> None:
    weights = [p for group in optimiser.param_groups for p in group["params"]]
    optimiser.state.clear()
    for key, value in state.items():
        place, _, name = key.partition(".")
        weight = weights[int(place)]
        optimiser.state[weight][name] = value.to(weight.device, copy=True)  # the fused kernel's counter too lives there
