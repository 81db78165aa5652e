"""Rewards regressed on states, by small networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cic.learning.networks import mlp

Doubles = npt.NDArray[np.float64]
Rows = npt.NDArray[Any]
AT_ONCE = 50_000  # rows that are predicted together


def standardiser(every: Rows) -> Callable[[Rows], Doubles]:
    """States by the mean and spread of `every` one, so that no unit of measurement outweighs the others."""
    known = every.reshape(-1, every.shape[-1]).astype(np.float64)
    middle, spread = known.mean(axis=0), known.std(axis=0)
    spread = np.where(spread > 1e-6, spread, 1.0)
    return lambda states: np.asarray((states - middle) / spread)


def fitted(states: Rows, rewards: Rows, updates: int, seed: int, networks: int = 1) -> Callable[[Rows], Doubles]:
    """Least squares of rewards (N,) on states (N, D): a function from states (…, D) to rewards (…,).

    The mean of `networks` MLPs. What a reward is measured in does not matter.
    """
    paid = rewards.astype(np.float64)
    middle, spread = paid.mean(), paid.std()
    if spread <= 1e-9 * np.abs(paid).max():  # nothing to learn but rounding
        return lambda asked: np.full(asked.shape[:-1], middle)
    x, y = _tensor(states), _tensor((paid - middle) / spread)[:, None]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found = [_least_squares(x, y, updates) for _ in range(networks)]

    def predict(asked: Rows) -> Doubles:
        rows = torch.split(_tensor(asked.reshape(-1, asked.shape[-1])), AT_ONCE)
        said = torch.stack([torch.cat([network(part) for part in rows]) for network in found]).mean(dim=0)
        return np.asarray(middle + spread * said.numpy().reshape(asked.shape[:-1]), np.float64)

    return predict


def _least_squares(x: Tensor, y: Tensor, updates: int) -> Callable[[Tensor], Tensor]:
    network = mlp(x.shape[1], 64, 64, 1)
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3, fused=True)
    for _ in range(updates):
        rows = torch.randint(len(x), (256,))
        loss = (network(x[rows]) - y[rows]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network.requires_grad_(False)


def _tensor(array: Rows) -> Tensor:
    return torch.from_numpy(array.astype(np.float32))
