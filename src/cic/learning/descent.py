"""Gradient descent on a loss: the one place that steps optimisers, and the seam where `torch.compile` enters."""

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
    """What Adam keeps of one weight."""

    step: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor


class Adam:
    """Adam (Kingma & Ba 2015) with β = (0.9, 0.999) and ε = 1e-8, by torch's own function and fused kernel.

    `groups` are `{"params": [...], "lr": ...}`, as `torch.optim.Adam` takes them. That class spends half a millisecond
    per update (7 % at `laptop` scale) on what is not needed here: lists made anew at each step, hooks, `.grad`.
    """

    def __init__(self, groups: Iterable[dict[str, Any]]) -> None:
        self.groups = [(float(group["lr"]), list(group["params"])) for group in groups]
        self.weights = [weight for _, weights in self.groups for weight in weights]
        self._moments = [
            Moments(torch.zeros((), device=w.device), torch.zeros_like(w), torch.zeros_like(w)) for w in self.weights
        ]

    @torch.no_grad()
    def step(self, gradients: Gradients) -> None:
        """One step down; a weight without gradient stays as it is."""
        parts = list(zip(self.weights, gradients, self._moments, strict=True))
        for lr, weights in self.groups:
            mine, parts = parts[: len(weights)], parts[len(weights) :]
            used = [(weight, gradient, moments) for weight, gradient, moments in mine if gradient is not None]
            adam(
                [weight for weight, _, _ in used],
                [gradient for _, gradient, _ in used],
                [moments.exp_avg for *_, moments in used],
                [moments.exp_avg_sq for *_, moments in used],
                [],
                [moments.step for *_, moments in used],
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
        """`"3.exp_avg"` and so on: counter and moments of every weight, by its place; they share memory."""
        return {f"{i}.{name}": value for i, m in enumerate(self._moments) for name, value in m._asdict().items()}

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        for name, value in self.state().items():
            value.copy_(state[name])


class Descent:
    """A loss and the optimisers of the weights that it moves.

    The loss is a pure function of its inputs and the weights: what is random comes in. Gradients are asked for by name,
    so none are made for weights that it does not move (the critic's in the actor's step).
    """

    def __init__(self, loss: Loss, *optimisers: Adam) -> None:
        self._loss, self._optimisers = loss, optimisers
        self._weights = [weight for optimiser in optimisers for weight in optimiser.weights]
        self._gradients: Callable[..., tuple[Gradients, Metrics]] = self._by_autograd

    def step(self, *inputs: Any) -> Metrics:
        gradients, metrics = self._gradients(*inputs)
        for optimiser in self._optimisers:
            count = len(optimiser.weights)
            optimiser.step(gradients[:count])
            gradients = gradients[count:]
        return metrics

    def _by_autograd(self, *inputs: Any) -> tuple[Gradients, Metrics]:
        loss, metrics = self._loss(*inputs)
        return torch.autograd.grad(loss, self._weights, allow_unused=True), metrics

    def compile(self, device: torch.device, siblings: list[Compiled]) -> None:
        """From now on by `torch.compile`: the same numbers to within rounding, sooner."""
        self._gradients = Compiled(self._by_autograd, device, siblings)
