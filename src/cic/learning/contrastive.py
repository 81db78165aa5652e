"""Rewards from contrastive logits (skills × transitions): density ratios and the disagreement of an ensemble."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_density_ratio(logits: Tensor) -> Tensor:
    """log q(τ|z) = f(τ_i, z_i) − log 1/N Σ_j exp f(τ_j, z_i), (B, 1); rows of `logits` are skills."""
    return (logits.diagonal() - logits.logsumexp(dim=1) + math.log(len(logits)))[:, None]


def disagreement(logits: Tensor) -> Tensor:
    """DISDAIN's bonus (Strouse et al. 2021): H[mean_m q_m(z|τ)] − mean_m H[q_m(z|τ)] over the batch's skills."""
    log_q = logits.log_softmax(dim=1)  # (M, skills, transitions): normalise over skills
    q = log_q.exp()
    mean = q.mean(dim=0)
    entropy_of_mean = -torch.xlogy(mean, mean).sum(dim=0)
    mean_entropy = -(q * log_q).sum(dim=1).mean(dim=0)
    return (entropy_of_mean - mean_entropy)[:, None]
