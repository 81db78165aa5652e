"""Disagreement (Pathak et al. 2019, eq. 1): go where an ensemble of forward models has not yet come to agree.

    loss   = mean over members and batch of ‖s' − f_m(s, a)‖
    reward = mean over dimensions of Var_m f_m(s, a)

Unlike a prediction error, the variance vanishes where the world is merely noisy. Deviations from the paper, all of them
URLB's: the members see the raw states, the error is a norm, the variance is unbiased, every member learns from every
transition and only its initialisation (PyTorch's default) sets it apart, and the reward is not differentiated through.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics, Spaces
from cic.learning.objectives.base import Objective, register


@dataclass(frozen=True)
class DisagreementOptions:
    ensemble: int = 5
    """Forward models whose predictions are compared."""

    def __post_init__(self) -> None:
        require(self.ensemble >= 2, "ensemble must be at least 2: one model cannot disagree")


@register("disagreement")
class Disagreement(Objective):
    """The variance of an ensemble of forward models (Pathak et al. 2019)."""

    Options = DisagreementOptions
    title = "Disagreement"
    options: DisagreementOptions

    def __init__(self, spaces: Spaces, hidden: int, options: DisagreementOptions) -> None:
        super().__init__(spaces, hidden, options)
        members, inputs = options.ensemble, spaces.obs + spaces.action
        self.weight_in, self.bias_in = _layers(members, inputs, hidden)
        self.weight_out, self.bias_out = _layers(members, hidden, spaces.obs)

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        error = torch.linalg.vector_norm(batch.next_obs - self._predictions(batch), dim=2).mean()
        return error, {"representation/loss": error.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        predictions = self._predictions(batch)
        deviations = predictions - predictions.mean(dim=0)  # torch.var over a leading dimension is 40 times slower
        return deviations.square_().sum(dim=0).mean(dim=1, keepdim=True) / (len(predictions) - 1)

    def _predictions(self, batch: Batch) -> Tensor:
        """(members, B, obs)"""
        inputs = torch.cat([batch.obs, batch.action], dim=1).expand(len(self.bias_in), -1, -1)
        hidden = F.relu(torch.baddbmm(self.bias_in, inputs, self.weight_in), inplace=True)  # (members, B, H)
        return torch.baddbmm(self.bias_out, hidden, self.weight_out)


def _layers(members: int, fan_in: int, fan_out: int) -> tuple[nn.Parameter, nn.Parameter]:
    """The weights and biases of one Linear per member, each drawn as PyTorch draws a Linear's: U(±1/√fan_in)."""
    bound = fan_in**-0.5
    weight = torch.empty(members, fan_in, fan_out).uniform_(-bound, bound)
    bias = torch.empty(members, 1, fan_out).uniform_(-bound, bound)
    return nn.Parameter(weight), nn.Parameter(bias)
