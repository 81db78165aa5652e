"""Fixed: a reward of 1 for every step, the control of the CIC paper (Laskin et al. 2022, Fig. 4).

The policy learns only to avoid termination. Where falling terminates an episode, this can look like a skill; where
episodes are only truncated, all policies are equally good. A method should score higher than this control.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cic.core.types import Batch
from cic.learning.objectives.base import Objective, register


@register("fixed")
class Fixed(Objective):
    """A constant reward (Laskin et al. 2022); only the policy is trained."""

    title = "Fixed"

    @property
    def exempt(self) -> frozenset[str]:
        return frozenset({"constant reward"})

    def reward(self, batch: Batch) -> Tensor:
        return torch.ones_like(batch.reward)
