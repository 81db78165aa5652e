"""Discrete actions as one-hot vectors with one group of entries per choice: `MultiDiscrete([3, 2])` has two groups."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

Choices = tuple[int, ...]


def _groups(values: Tensor, choices: Choices) -> tuple[Tensor, ...]:
    return torch.split_with_sizes(values, list(choices), dim=-1)


def best(values: Tensor, choices: Choices) -> Tensor:
    """Return the one-hot action (N, action) with the largest value in each group."""
    groups = _groups(values, choices)
    return torch.cat([F.one_hot(group.argmax(dim=-1), group.shape[-1]) for group in groups], dim=-1).to(values.dtype)


def log_probabilities(logits: Tensor, choices: Choices) -> Tensor:
    """Return the logarithms (N, action) of the softmax of each group."""
    return torch.cat([group.log_softmax(dim=-1) for group in _groups(logits, choices)], dim=-1)


def cross_entropy(logits: Tensor, action: Tensor, choices: Choices) -> Tensor:
    """Return the negative log-likelihood (N,) of one-hot actions, summed over the groups."""
    return -(action * log_probabilities(logits, choices)).sum(dim=-1)


def action_error(predicted: Tensor, action: Tensor, choices: Choices) -> Tensor:
    """Return the error (N,) of an inverse model: the cross-entropy, or ‖a − tanh(predicted)‖ of continuous actions."""
    if choices:
        return cross_entropy(predicted, action, choices)
    error: Tensor = torch.linalg.vector_norm(action - predicted.tanh(), dim=1)
    return error


def gumbel(like: Tensor, generator: torch.Generator) -> Tensor:
    """Draw Gumbel noise: `best(logits + noise)` is a sample of the softmax of each group."""
    uniform = torch.rand(like.shape, generator=generator, device=like.device)
    return -(-uniform.clamp(1e-20, 1 - 1e-7).log()).log()
