"""Optimiser steps on losses. All gradients are computed here, so this is also where `torch.compile` is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cic.core.types import Metrics
from cic.learning.compilation import Compiled

Loss = Callable[..., tuple[Tensor, Metrics]]
Gradients = tuple[Tensor | None, ...]


class Adam:
    """torch's fused Adam, with gradients passed as arguments and its state as a flat dict of tensors.

    `groups` are `{"params": [...], "lr": ...}`, as `torch.optim.Adam` takes them.
    """

    _SLOTS = ("step", "exp_avg", "exp_avg_sq")

    def __init__(self, groups: Iterable[dict[str, Any]]) -> None:
        self._groups = [{**group, "params": list(group["params"])} for group in groups]
        self.weights: list[Tensor] = [weight for group in self._groups for weight in group["params"]]

    @cached_property
    def _adam(self) -> torch.optim.Adam:
        """Created on first use: an agent that only acts does not wait a second for torch to import its compiler."""
        return torch.optim.Adam(self._groups, fused=True)

    def step(self, gradients: Gradients) -> None:
        """Take one step. A weight whose gradient is None keeps its value and its step count."""
        for weight, gradient in zip(self.weights, gradients, strict=True):
            weight.grad = None if gradient is None else gradient.contiguous()
        self._adam.step()

    def state(self) -> dict[str, Tensor]:
        """Return step count and moments as `"<index of the weight>.<name>"`; they share memory with the optimiser."""
        slots = ((index, self._adam.state.get(weight, {})) for index, weight in enumerate(self.weights))
        return {f"{index}.{name}": value for index, slot in slots for name, value in slot.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Replace the state by a copy of one that `state` returned, also by one from another device."""
        self._adam.state.clear()
        for index in sorted({int(name.partition(".")[0]) for name in state}):
            weight = self.weights[index]
            found = {name: state[f"{index}.{name}"] for name in self._SLOTS}
            for name, value in found.items():
                shape = () if name == "step" else weight.shape
                if value.shape != shape:
                    raise ValueError(f"{index}.{name} is {tuple(value.shape)}, expected {tuple(shape)}")
            self._adam.state[weight] = {name: value.to(weight, copy=True) for name, value in found.items()}


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
