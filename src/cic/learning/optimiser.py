"""Adam (Kingma & Ba 2015) by torch's fused kernel, without what `torch.optim` spends around it.

At batch 256 and H 256 that is more than a millisecond per update: lists assembled anew at every step, hooks, `.grad`
accumulated and cleared. Here gradients are asked for by name, so none are made for other weights (the critic's in the
actor's step), and the lists are made once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

Gradients = tuple[Tensor | None, ...]


class _Group(NamedTuple):
    lr: float
    parameters: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]
    counts: Tensor  # what `steps` are views of

    def only(self, used: list[bool]) -> _Group:
        """Without the parameters that got no gradient."""
        places = [place for place, keep in enumerate(used) if keep]
        parameters, means, squares, steps = ([values[place] for place in places] for values in self[1:5])
        return _Group(self.lr, parameters, means, squares, steps, self.counts)


class Adam:
    """β = (0.9, 0.999), ε = 1e-8. `groups` are `{"params": [...], "lr": ...}`, as `torch.optim` takes them."""

    def __init__(self, groups: Iterable[dict[str, Any]]) -> None:
        self._groups = []
        for group in groups:
            parameters = list(group["params"])
            means, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
            counts = torch.zeros(len(parameters), device=parameters[0].device)
            self._groups.append(_Group(group["lr"], parameters, means, squares, list(counts.unbind()), counts))
        self.parameters = [p for group in self._groups for p in group.parameters]

    def gradients(self, loss: Tensor) -> Gradients:
        """Of `loss` by each parameter; None for those that it does not depend on."""
        return torch.autograd.grad(loss, self.parameters, allow_unused=True)

    @torch.no_grad()
    def step(self, gradients: Gradients) -> None:
        """One step down; a parameter without gradient stays as it is."""
        begin = 0
        for group in self._groups:
            end = begin + len(group.parameters)
            _step(group, gradients[begin:end])
            begin = end

    def state(self) -> dict[str, Tensor]:
        """`"3.exp_avg"` and so on: counter and moments of every parameter, by its place; they share memory."""
        slots = [slot for group in self._groups for slot in zip(group.steps, group.means, group.squares, strict=True)]
        names = ("step", "exp_avg", "exp_avg_sq")
        return {f"{i}.{name}": value for i, slot in enumerate(slots) for name, value in zip(names, slot, strict=True)}

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        for name, value in self.state().items():
            value.copy_(state[name])


def _step(group: _Group, gradients: Gradients) -> None:
    used = [gradient is not None for gradient in gradients]
    if all(used):
        group.counts.add_(1)
    else:
        group = group.only(used)
        torch._foreach_add_(group.steps, 1)
    torch._fused_adam_(
        group.parameters,
        [gradient.contiguous() for gradient in gradients if gradient is not None],  # the kernel walks memory in order
        group.means,
        group.squares,
        [],
        group.steps,
        lr=group.lr,
        beta1=0.9,
        beta2=0.999,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )
