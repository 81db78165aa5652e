"""RND, random network distillation (Burda et al. 2019, sections 2.2 and 2.4): go where a random net is not yet known.

    error(s) = mean over features of (predictor(x) − target(x))², x = s normalised by its batch and clipped
    loss     = mean error
    reward   = error / (running standard deviation of errors + 1e-8)

Deviations from the paper, all of them URLB's: observations are normalised by the batch's own mean and variance
instead of running ones; the running statistic is that of single errors instead of discounted returns; one critic
learns from the intrinsic reward; the reward is of s, not s'.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cic.core.config import require
from cic.core.types import Batch, Metrics, Spaces
from cic.learning.networks import mlp, orthogonal_init
from cic.learning.objectives.base import Objective, register
from cic.learning.particles import RunningStatistics


@dataclass(frozen=True)
class RNDOptions:
    feature_dim: int = 512
    """Outputs of the random network."""
    obs_clip: float = 5.0
    """Bound of the normalised observation."""

    def __post_init__(self) -> None:
        require(self.feature_dim >= 1, f"feature_dim must be at least 1, not {self.feature_dim}")
        require(self.obs_clip > 0, f"obs_clip must be positive, not {self.obs_clip}")


@register("rnd")
class RND(Objective):
    """Distillation of a random network (Burda et al. 2019)."""

    Options = RNDOptions
    title = "RND"
    options: RNDOptions

    def __init__(self, spaces: Spaces, hidden: int, options: RNDOptions, generator: torch.Generator) -> None:
        super().__init__(spaces, hidden, options, generator)
        self.predictor = mlp(spaces.obs, hidden, hidden, options.feature_dim)
        self.target = mlp(spaces.obs, hidden, hidden, options.feature_dim)
        self.apply(orthogonal_init)
        self.target.requires_grad_(False)
        self.errors = RunningStatistics()
        self._known: tuple[Tensor, int, Tensor, Tensor] | None = None

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        obs, target = self._embed(batch.obs)
        # The target never changes, so the reward of the same batch need not embed it again.
        self._known = batch.obs, batch.obs._version, obs, target
        error = F.mse_loss(self.predictor(obs), target)
        return error, {"representation/loss": error.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        known, self._known = self._known, None
        if known is not None and known[0] is batch.obs and known[1] == batch.obs._version:
            obs, target = known[2:]
        else:
            obs, target = self._embed(batch.obs)
        error: Tensor = (self.predictor(obs) - target).square_().mean(dim=1, keepdim=True)
        self.errors.update(error)
        return error / (self.errors.std + 1e-8)

    def diagnose(self, batch: Batch) -> Metrics:
        return {"reward/running_std": self.errors.std.squeeze()}

    @torch.no_grad()
    def _embed(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """The normalised observation (B, obs) and the target's features of it (B, features)."""
        obs = F.batch_norm(obs, None, None, training=True).clamp_(-self.options.obs_clip, self.options.obs_clip)
        return obs, self.target(obs)
