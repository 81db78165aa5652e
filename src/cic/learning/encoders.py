"""Encoders compute the features that objective, actor and critic use from observations."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn


class Encoder(nn.Module):
    """Features of an observation. One optimiser trains its parameters, with the gradients of the losses named below."""

    dim: int
    """Width of the features."""
    learns_from: ClassVar[frozenset[str]] = frozenset({"objective", "critic"})
    """The losses whose gradients train it: "objective", "critic" or both. The loss of the actor never does."""


class Identity(Encoder):
    """For state observations: the features are the observation."""

    learns_from = frozenset()

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, obs: Tensor) -> Tensor:
        return obs
