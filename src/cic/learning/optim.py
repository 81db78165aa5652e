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


class _Group(NamedTuple):
    """Weights that share a learning rate, and what Adam keeps of each."""

    lr: float
    weights: list[Tensor]
    exp_avg: list[Tensor]
    exp_avg_sq: list[Tensor]
    step: list[Tensor]

    def only(self, used: list[bool]) -> _Group:
        """Without the weights that got no gradient."""
        return _Group(self.lr, *([one for one, keep in zip(column, used, strict=True) if keep] for column in self[1:]))


class Adam:
    """Adam (Kingma & Ba 2015) with β = (0.9, 0.999) and ε = 1e-8, by torch's own function and fused kernel.

    `groups` are `{"params": [...], "lr": ...}`, as `torch.optim.Adam` takes them. That class spends half a millisecond
    per update (7 % at `laptop` scale) on what is not needed here: lists made anew at each step, hooks, `.grad`.
    """

    def __init__(self, groups: Iterable[dict[str, Any]]) -> None:
        self._groups = []
        for group in groups:
            weights = list(group["params"])
            means, squares = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
            counts = [torch.zeros((), device=weight.device) for weight in weights]
            self._groups.append(_Group(float(group["lr"]), weights, means, squares, counts))
        self.weights = [weight for group in self._groups for weight in group.weights]

    @torch.no_grad()
    def step(self, gradients: Gradients) -> None:
        """One step down; a weight without gradient stays as it is."""
        for group in self._groups:
            mine, gradients = gradients[: len(group.weights)], gradients[len(group.weights) :]
            used = [gradient is not None for gradient in mine]
            part = group if all(used) else group.only(used)
            adam(
                part.weights,
                [
                    gradient.contiguous() for gradient in mine if gradient is not None
                ],  # the kernel walks memory in order
                part.exp_avg,
                part.exp_avg_sq,
                [],
                part.step,
                fused=True,
                lr=part.lr,
                beta1=0.9,
                beta2=0.999,
                eps=1e-8,
                weight_decay=0.0,
                amsgrad=False,
                maximize=False,
            )

    def state(self) -> dict[str, Tensor]:
        """`"3.exp_avg"` and so on: counter and moments of every weight, by its place; they share memory."""
        slots = [slot for g in self._groups for slot in zip(g.step, g.exp_avg, g.exp_avg_sq, strict=True)]
        names = ("step", "exp_avg", "exp_avg_sq")
        return {f"{i}.{name}": value for i, slot in enumerate(slots) for name, value in zip(names, slot, strict=True)}

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        for name, value in self.state().items():
            if state[name].shape != value.shape:  # copying would stretch it
                raise ValueError(f"{name} is {tuple(state[name].shape)}, expected {tuple(value.shape)}")
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
