"""Encoders compute the features that objective, actor and critic use from observations."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

CLIP = 10.0
"""Bound of normalised observations."""


class Encoder(nn.Module):
    """Features of an observation. One optimiser trains its parameters, with the gradients of the losses named below."""

    dim: int
    """Width of the features."""
    learns_from: ClassVar[frozenset[str]] = frozenset({"objective", "critic"})
    """The losses whose gradients train it: "objective", "critic" or both. The loss of the actor never does."""


class Normaliser(Encoder):
    """(s − mean) / standard deviation of each entry over all steps so far, clipped to ±`CLIP`; no losses train it.

    The replay holds the environment's observations; they are normalised with the current statistics when they are
    used. The loop calls `observe` in training, so the statistics do not change in evaluations.
    """

    learns_from = frozenset()
    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("mean", torch.zeros(dim, dtype=torch.float64))
        self.register_buffer("var", torch.ones(dim, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def observe(self, obs: Tensor) -> None:
        """Add observations (N, dim) to mean and variance (Chan et al. 1979)."""
        obs = obs.double()
        n, mean, var = len(obs), obs.mean(dim=0), obs.var(dim=0, correction=0)
        total = self.count + n
        delta = mean - self.mean
        self.var.copy_((self.var * self.count + var * n + delta.square() * self.count * n / total) / total)
        self.mean += delta * n / total
        self.count.copy_(total)

    def forward(self, obs: Tensor) -> Tensor:
        least = 1e-6 * self.mean.abs() + 1e-12  # an entry that is constant up to rounding stays about 0
        scale = torch.maximum(self.var.sqrt(), least)
        return ((obs.double() - self.mean) / scale).clamp(-CLIP, CLIP).float()


class Identity(Encoder):
    """For state observations: the features are the observation."""

    learns_from = frozenset()

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, obs: Tensor) -> Tensor:
        return obs
