"""ICM, the intrinsic curiosity module (Pathak et al. 2017, eqs. 2–7): visit states where the forward model is wrong.

    loss   = mean ‖s' − f(s, a)‖ + mean ‖a − g(s, s')‖
    reward = log(1 + ‖s' − f(s, a)‖)

Deviations from the paper, all of them URLB's: f and g use raw states, not features learned by g, so g does not
influence the reward; errors are norms instead of half squared norms with equal weights (no β, no policy term); the
reward is a logarithm instead of being scaled by η/2; s' is n steps ahead, as in every n-step batch. With discrete
actions the error of g is the cross-entropy, as in the paper.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cic.core.types import Batch, Metrics, Spaces
from cic.learning.choices import action_error
from cic.learning.networks import mlp, orthogonal_init
from cic.learning.objectives.base import Objective, register


@register("icm")
class ICM(Objective):
    """A forward and an inverse model on raw states (Pathak et al. 2017)."""

    title = "ICM"

    def __init__(self, spaces: Spaces, hidden: int, options: Any) -> None:
        super().__init__(spaces, hidden, options)
        self.forward_model = mlp(spaces.obs + spaces.action, hidden, spaces.obs)
        self.inverse_model = mlp(2 * spaces.obs, hidden, spaces.action)
        self.apply(orthogonal_init)

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        forward_error = self._forward_error(batch).mean()
        action = self.inverse_model(torch.cat([batch.obs, batch.next_obs], dim=1))
        inverse_error = action_error(action, batch.action, self.spaces.choices).mean()
        loss = forward_error + inverse_error
        return loss, {
            "representation/loss": loss.detach(),
            "representation/forward_error": forward_error.detach(),
            "representation/inverse_error": inverse_error.detach(),
        }

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        return torch.log1p(self._forward_error(batch))

    def _forward_error(self, batch: Batch) -> Tensor:
        """(B, 1)"""
        obs, next_obs = batch.obs.detach(), batch.next_obs.detach()  # of an image encoder, only g trains the features
        predicted = self.forward_model(torch.cat([obs, batch.action], dim=1))
        error: Tensor = torch.linalg.vector_norm(next_obs - predicted, dim=1, keepdim=True)
        return error
