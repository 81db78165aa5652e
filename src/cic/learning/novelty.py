"""Novelty: the disagreement of an ensemble of forward models, relative to its average so far."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cic.core.types import Batch
from cic.learning.networks import ensemble_layers, ensemble_predictions, ensemble_variance
from cic.learning.particles import RunningStatistics

MOST = 5.0
"""Largest novelty of a transition; 1 is the average."""


class Novelty(nn.Module):
    """min(D / running mean of D, 5), D = mean over dimensions of the variance over the models' predictions of s'."""

    def __init__(self, obs: int, action: int, hidden: int, members: int) -> None:
        super().__init__()
        self.weight_in, self.bias_in = ensemble_layers(members, obs + action, hidden)
        self.weight_out, self.bias_out = ensemble_layers(members, hidden, obs)
        self.statistics = RunningStatistics()

    def error(self, batch: Batch) -> Tensor:
        """The loss of the models: mean over members and batch of ‖s' − f_m(s, a)‖."""
        error: Tensor = torch.linalg.vector_norm(batch.next_obs - self._predictions(batch), dim=2).mean()
        return error

    @torch.no_grad()
    def bonus(self, batch: Batch, *, update: bool = True) -> Tensor:
        """(B, 1): the novelty of each transition. `update` adds the batch to the running mean first."""
        disagreement = ensemble_variance(self._predictions(batch))
        if update:
            self.statistics.update(disagreement)
        return (disagreement / self.statistics.mean.clamp_min(1e-8)).clamp_max(MOST)

    def _predictions(self, batch: Batch) -> Tensor:
        return ensemble_predictions(batch, (self.weight_in, self.bias_in), (self.weight_out, self.bias_out))
