"""Disagreement (Pathak et al. 2019, eq. 1): visit states where an ensemble of forward models disagrees.

    loss   = mean over members and batch of ‖s' − f_m(s, a)‖
    reward = mean over dimensions of Var_m f_m(s, a)

Unlike a prediction error, the variance vanishes where transitions are only noisy. Deviations from the paper, all of
them URLB's: the members use raw states, the error is a norm, the variance is unbiased, all members train on the same
transitions and differ only in their initial weights (PyTorch's default), and no gradient flows through the reward.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cic.core.config import require
from cic.core.types import Batch, Metrics, Spaces
from cic.learning.networks import ensemble_layers, ensemble_predictions, ensemble_variance
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
    trains_encoder = False  # constant features can be predicted without error
    options: DisagreementOptions

    def __init__(self, spaces: Spaces, hidden: int, options: DisagreementOptions) -> None:
        super().__init__(spaces, hidden, options)
        members, inputs = options.ensemble, spaces.obs + spaces.action
        self.weight_in, self.bias_in = ensemble_layers(members, inputs, hidden)
        self.weight_out, self.bias_out = ensemble_layers(members, hidden, spaces.obs)

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        error = torch.linalg.vector_norm(batch.next_obs - self._predictions(batch), dim=2).mean()
        return error, {"representation/loss": error.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        return ensemble_variance(self._predictions(batch))

    def _predictions(self, batch: Batch) -> Tensor:
        return ensemble_predictions(batch, (self.weight_in, self.bias_in), (self.weight_out, self.bias_out))
