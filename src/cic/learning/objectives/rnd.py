"""RND, random network distillation (Burda et al. 2019, sections 2.2 and 2.4): visit states where a random network is
not yet predicted well.

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
    trains_encoder = False  # constant features can be predicted without error
    options: RNDOptions

    def __init__(self, spaces: Spaces, hidden: int, options: RNDOptions) -> None:
        super().__init__(spaces, hidden, options)
        self.predictor = mlp(spaces.obs, hidden, hidden, options.feature_dim)
        self.target = mlp(spaces.obs, hidden, hidden, options.feature_dim)
        self.apply(orthogonal_init)
        self.target.requires_grad_(False)
        self.errors = RunningStatistics()

    @torch.no_grad()
    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        """The normalised observation and the random network's features of it, which loss and reward share."""
        clip = self.options.obs_clip
        obs = F.batch_norm(batch.obs, None, None, training=True).clamp(-clip, clip)
        return batch.with_extras(normal_obs=obs, target=self.target(obs))

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        error = F.mse_loss(self.predictor(batch.extras["normal_obs"]), batch.extras["target"])
        return error, {"representation/loss": error.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        predicted: Tensor = self.predictor(batch.extras["normal_obs"])
        error = (predicted - batch.extras["target"]).square().mean(dim=1, keepdim=True)
        self.errors.update(error)
        return error / (self.errors.std + 1e-8)

    def diagnose(self, batch: Batch) -> Metrics:
        return {"reward/running_std": self.errors.std.squeeze()}
