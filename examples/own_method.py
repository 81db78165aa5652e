"""Add a method: its reward is the prediction error of a forward model.

python examples/own_method.py [SCALE]      (laptop by default, a few minutes; smoke takes seconds)
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from torch import Tensor

import cic
from cic.core.types import Batch, Spaces
from cic.learning.networks import mlp


@dataclass(frozen=True)
class SurpriseOptions:
    width: int = 64
    """Width of the forward model's hidden layer."""


@cic.register("surprise")
class Surprise(cic.Objective):
    """Prediction error of a forward model."""

    Options = SurpriseOptions
    title = "Surprise"

    def __init__(self, spaces: Spaces, hidden: int, options: SurpriseOptions) -> None:
        super().__init__(spaces, hidden, options)
        self.forward_model = mlp(spaces.obs + spaces.action, options.width, spaces.obs)

    def _error(self, batch: Batch) -> Tensor:
        prediction = self.forward_model(torch.cat([batch.obs, batch.action], dim=1))
        return (prediction - batch.next_obs).square().mean(dim=1, keepdim=True)

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        error = self._error(batch).mean()
        return error, {"surprise/error": error.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        return torch.log1p(self._error(batch))


scale = sys.argv[1] if len(sys.argv) > 1 else "laptop"
for method in ("surprise", "rnd"):
    run = cic.pretrain("gridworld", method, scale=scale)
    print(f"{method}: visited {run.result['coverage/fraction']:.0%} of the cells, {run.path}")
