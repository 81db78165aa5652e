"""The words everyone shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # environments alone do without torch
    from torch import Tensor

Array: TypeAlias = npt.NDArray[np.float32]
Metrics: TypeAlias = "dict[str, Tensor]"
"""`area/name` → a scalar tensor. Only the logger turns it into a number, so nothing on the hot path waits."""


class Spaces(NamedTuple):
    """What an agent must know of an environment."""

    obs: int
    action: int


class Batch(NamedTuple):
    """n-step transitions, a row each. With n = 3, `next_obs` is s_{t+3} and `discount` γ³ (0 past a termination)."""

    obs: Tensor  # (B, obs)
    action: Tensor  # (B, action)
    reward: Tensor  # (B, 1) discounted sum of the task's rewards
    discount: Tensor  # (B, 1)
    next_obs: Tensor  # (B, obs)
    skill: Tensor  # (B, skill); (B, 0) for methods without skills
