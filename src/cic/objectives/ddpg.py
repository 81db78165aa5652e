"""No intrinsic reward: DDPG (Lillicrap et al. 2016) learns from the task's reward alone."""

from __future__ import annotations

from torch import Tensor

from cic.objectives.base import Objective, register
from cic.types import Batch


@register("ddpg")
class TaskReward(Objective):
    """The task's own reward (Lillicrap et al. 2016): what finetuning from scratch uses."""

    title = "DDPG"

    def reward(self, batch: Batch) -> Tensor:
        return batch.reward
