"""Regression of rewards on states with small networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cic.learning.networks import mlp
from cic.learning.seeding import seeded

Doubles = npt.NDArray[np.float64]
Rows = npt.NDArray[Any]
BLOCK = 20  # neighbouring rows that are held out together
CHUNK = 50_000  # rows that are predicted together


def standardiser(every: Rows) -> Callable[[Rows], Doubles]:
    """Return a function that standardises states with the mean and standard deviation of `every` state."""
    known = every.reshape(-1, every.shape[-1]).astype(np.float64)
    middle, spread = known.mean(axis=0), known.std(axis=0)
    spread = np.where(spread > 1e-6, spread, 1.0)
    return lambda states: np.asarray((states - middle) / spread)


def fitted(states: Rows, rewards: Rows, updates: int, seed: int, networks: int = 1) -> Callable[[Rows], Doubles]:
    """Fit rewards (N,) to states (N, D) by least squares; return a function from states (…, D) to rewards (…,).

    The function is the mean of `networks` MLPs. Rewards are standardised, so their unit does not matter.
    """
    rewards = rewards.astype(np.float64)
    middle, spread = rewards.mean(), rewards.std()
    if spread <= 1e-9 * np.abs(rewards).max():  # constant up to rounding
        return lambda asked: np.full(asked.shape[:-1], middle)
    x, y = _tensor(states), _tensor((rewards - middle) / spread)[:, None]
    with seeded(seed):
        found = [_least_squares(x, y, updates) for _ in range(networks)]

    def predict(asked: Rows) -> Doubles:
        rows = torch.split(_tensor(asked.reshape(-1, asked.shape[-1])), CHUNK)
        predicted = torch.stack([torch.cat([network(part) for part in rows]) for network in found]).mean(dim=0)
        return np.asarray(middle + spread * predicted.numpy().reshape(asked.shape[:-1]), np.float64)

    return predict


def held_out_r2(states: Rows, rewards: Rows, updates: int, seed: int) -> float:
    """Return R² on rows that the regression was not fitted to: 1 − their mean squared error / variance of all rewards.

    Every fifth block of `BLOCK` rows is held out: neighbouring rows are alike, so single rows would make it too large.
    A constant reward has R² = 1.
    """
    held = np.arange(len(states)) // BLOCK % 5 == 4
    rewards = rewards.astype(np.float64)
    if not held.any() or np.ptp(rewards) <= 1e-9 * np.abs(rewards).max():
        return 1.0
    predicted = fitted(states[~held], rewards[~held], updates, seed)(states[held])
    return float(1 - np.square(rewards[held] - predicted).mean() / rewards.var())


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
