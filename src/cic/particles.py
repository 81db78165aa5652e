"""Particle estimates of entropy (Liu & Abbeel 2021) and the running statistics that normalise them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningStatistics(nn.Module):
    """Welford's mean and variance of every number ever seen, as buffers.

    Starts at mean 0, variance 1, count 1e-4, as the released code does; a batch's variance is unbiased (n − 1).
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
    """(B, k) Euclidean distances to the k nearest rows of `keys`.

    The neighbours are found by one matrix product instead of a (B, N, D) difference, and only their distances are
    then computed from the difference, so that cancellation cannot spoil them. Where `queries is keys`, the point
    itself is among its neighbours, at a distance of exactly 0.
    """
    own = queries is keys
    centre = keys.mean(dim=0)  # far from the origin, float32 would not tell near neighbours apart
    near = keys - centre
    half_norms = near.square().sum(dim=1).mul_(0.5)
    # x·y − ½‖y‖² orders as −‖x − y‖ does, row by row
    closeness = torch.addmm(half_norms, near if own else queries - centre, near.T, beta=-1)
    if own:
        closeness.fill_diagonal_(torch.inf)
    nearest = closeness.topk(k, dim=1, sorted=False).indices
    neighbours = keys.index_select(0, nearest.flatten()).view(
        *nearest.shape, -1
    )  # (B, k, D), a third of indexing's time
    distances: Tensor = torch.linalg.vector_norm(neighbours.sub_(queries[:, None, :]), dim=2)
    return distances


@torch.no_grad()
def effective_rank(points: Tensor) -> Tensor:
    """exp of the entropy of the covariance's spectrum (Roy & Vetterli 2007): 1 is collapse, the dimension isotropy."""
    centred = points - points.mean(dim=0)
    spectrum = torch.linalg.eigvalsh(centred.T @ centred).clamp(min=0)
    share = spectrum / spectrum.sum().clamp(min=1e-12)
    return torch.exp(-torch.xlogy(share, share).sum())
