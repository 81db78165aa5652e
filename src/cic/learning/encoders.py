"""From what the environment shows to what objective, actor and critic see."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn


class Encoder(nn.Module):
    """Features of an observation. Its parameters have an optimiser of their own, whoever's gradient reaches them."""

    dim: int
    """Width of the features."""
    learns_from: ClassVar[frozenset[str]] = frozenset({"objective", "critic"})
    """Whose gradients reach it; the actor's never do."""


class Identity(Encoder):
    """States are features already."""

    learns_from = frozenset()

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, obs: Tensor) -> Tensor:
        return obs
