"""APT, active pre-training (Liu & Abbeel 2021, "Behavior From the Void"): maximise the distance to neighbours.

    loss   = mean ‖h(s') − f(h(s), a)‖ + mean ‖a − g(h(s), h(s'))‖
    reward = log(1 + mean over the k nearest of ‖h(s) − h(s_k)‖), the particle estimate of the entropy of h(s)

Deviations from the paper, all of them URLB's ("ICM APT"): the representation h is learned by ICM's forward and inverse
models in its own space instead of contrastively; distances are not raised to the power of the dimension and are not
divided by a running mean; the point itself counts as its nearest neighbour; the reward is of s, not s'. With discrete
actions the error of g is the cross-entropy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cic.core.config import require
from cic.core.types import Batch, Metrics, Spaces
from cic.learning.choices import action_error
from cic.learning.networks import mlp, orthogonal_init, trunk
from cic.learning.objectives.base import Objective, register
from cic.learning.particles import knn_distances


@dataclass(frozen=True)
class APTOptions:
    feature_dim: int = 512
    """Width of the representation in which nearest neighbours are computed."""
    knn: int = 12
    """Nearest neighbours in the batch, the point itself included."""

    def __post_init__(self) -> None:
        require(self.feature_dim >= 1, f"feature_dim must be at least 1, not {self.feature_dim}")
        require(self.knn >= 2, "knn must be at least 2: the nearest neighbour is the point itself")


@register("apt")
class APT(Objective):
    """Particle entropy of features learned by ICM (Liu & Abbeel 2021)."""

    Options = APTOptions
    title = "APT"
    options: APTOptions

    def __init__(self, spaces: Spaces, hidden: int, options: APTOptions) -> None:
        super().__init__(spaces, hidden, options)
        width = options.feature_dim
        self.trunk = trunk(spaces.obs, width)
        self.forward_model = mlp(width + spaces.action, hidden, width)
        self.inverse_model = mlp(2 * width, hidden, spaces.action)
        self.apply(orthogonal_init)

    def embed(self, obs: Tensor) -> Tensor:
        embedded: Tensor = self.trunk(obs)
        return embedded

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        here, there = self.trunk(batch.obs), self.trunk(batch.next_obs)
        predicted = self.forward_model(torch.cat([here, batch.action], dim=1))
        action = self.inverse_model(torch.cat([here, there], dim=1))
        # Gradients also flow through the target `there`: the inverse model prevents a collapse of the features.
        forward_error = torch.linalg.vector_norm(there - predicted, dim=1).mean()
        inverse_error = action_error(action, batch.action, self.spaces.choices).mean()
        loss = forward_error + inverse_error
        return loss, {
            "representation/loss": loss.detach(),
            "representation/forward_error": forward_error.detach(),
            "representation/inverse_error": inverse_error.detach(),
        }

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        features = self.trunk(batch.obs)
        distances = knn_distances(features, features, min(self.options.knn, len(features)))
        return torch.log1p(distances.mean(dim=1, keepdim=True))
