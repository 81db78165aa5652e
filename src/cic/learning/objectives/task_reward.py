"""No intrinsic reward: DDPG (Lillicrap et al. 2016) learns only from the task's reward."""

from __future__ import annotations

from torch import Tensor

from cic.core.types import Batch
from cic.learning.objectives.base import Objective, register


@register("ddpg")
class TaskReward(Objective):
    """The task's own reward (Lillicrap et al. 2016), for finetuning from scratch."""

    title = "DDPG"

    def reward(self, batch: Batch) -> Tensor:
        return batch.reward
