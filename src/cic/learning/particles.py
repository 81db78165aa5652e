"""Particle estimates of entropy (Liu & Abbeel 2021) and the running statistics that normalise them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningStatistics(nn.Module):
    """Welford's running mean and variance of all values, as buffers.

    They start at mean 0, variance 1 and count 1e-4, as in the released code; the variance of a batch is unbiased.
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("var", torch.ones(1))
        self.register_buffer("count", torch.full((1,), 1e-4))

    @torch.no_grad()
    def update(self, values: Tensor) -> None:
        n = values.numel()
        var, mean = torch.var_mean(values)  # unbiased
        total = self.count + n
        delta = mean - self.mean
        spread = self.var * self.count + var * n + delta.square() * self.count * n / total
        self.mean += delta * n / total
        self.var.copy_(spread / total)
        self.count.copy_(total)

    @property
    def std(self) -> Tensor:
        return self.var.sqrt()


@torch.no_grad()
def knn_distances(queries: Tensor, keys: Tensor, k: int) -> Tensor:
    """Return the Euclidean distances (B, k) to the k nearest rows of `keys`, in no particular order.

    ‖x − y‖² = ‖x‖² + ‖y‖² − 2 x·y is one matrix product instead of a (B, N, D) difference; double precision avoids
    cancellation. If `queries is keys`, each point is its own neighbour, at a distance of exactly 0.
    """
    own = queries is keys
    points = keys.double()
    others = points if own else queries.double()
    squares = points.square().sum(dim=1)
    other_squares = squares if own else others.square().sum(dim=1)
    distances = torch.addmm(squares, others, points.T, alpha=-2).add_(other_squares[:, None]).float()
    if own:
        distances.fill_diagonal_(0)
    return _smallest(distances, k).clamp_(min=0).sqrt_()


def _smallest(values: Tensor, k: int) -> Tensor:
    """Return the k smallest values (B, k) of each row. `values` is overwritten.

    On the CPU, NumPy's vectorised partition takes a quarter of the time of topk.
    """
    if values.device.type == "cpu":
        values.numpy().partition(k - 1, axis=1)
        return values[:, :k]
    return values.topk(k, dim=1, largest=False, sorted=False).values


@torch.no_grad()
def effective_rank(points: Tensor) -> Tensor:
    """exp of the entropy of the covariance's spectrum (Roy & Vetterli 2007): from 1 (collapsed) to the dimension."""
    centred = points - points.mean(dim=0)
    smaller = centred.T @ centred if points.shape[1] <= points.shape[0] else centred @ centred.T
    spectrum = torch.linalg.eigvalsh(smaller).clamp(min=0)  # without the zeros, which both products share
    share = spectrum / spectrum.sum().clamp(min=1e-12)
    return torch.exp(-torch.xlogy(share, share).sum())
