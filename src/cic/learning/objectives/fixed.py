"""Fixed: a reward of 1 for every step, the control of the CIC paper (Laskin et al. 2022, Fig. 4).

It teaches only to stay alive. Where episodes end by falling, that alone looks like skill; where they end by time, the
policy gets no preference at all. A method that does not beat it has learned nothing from its own reward.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cic.core.types import Batch
from cic.learning.objectives.base import Objective, register


@register("fixed")
class Fixed(Objective):
    """A constant reward (Laskin et al. 2022); nothing is learned but the policy."""

    title = "Fixed"

    @property
    def exempt(self) -> frozenset[str]:
        return frozenset({"constant reward"})

    def reward(self, batch: Batch) -> Tensor:
        return torch.ones_like(batch.reward)
