"""Types that all packages share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # environments do not need torch
    import torch
    from torch import Tensor

    from cic.core.observations import Part

Array: TypeAlias = npt.NDArray[np.float32]
Bools: TypeAlias = npt.NDArray[np.bool_]
Metrics: TypeAlias = "dict[str, Tensor]"
"""`area/name` → a scalar tensor. Only the logger converts it to a number, so updates never wait for the device."""


class Spaces(NamedTuple):
    """The sizes of observations and actions.

    Discrete actions are one-hot vectors: `Discrete(4)` has the choices (4,), `MultiDiscrete([3, 2])` has (3, 2) and an
    action of 5 numbers, `MultiBinary(3)` has (2, 2, 2). Continuous actions have no choices.
    """

    obs: int
    action: int
    choices: tuple[int, ...] = ()
    parts: tuple[Part, ...] = ()
    """The parts of an observation that is an image or has named parts; empty for a plain vector."""

    @property
    def images(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.frames)

    @property
    def frame_bytes(self) -> int:
        """Bytes of the images of one observation, without earlier images of a stack."""
        return sum(part.frame_size for part in self.images)

    @property
    def numbers(self) -> int:
        """Entries of an observation that are not pixels."""
        return self.obs - sum(part.size for part in self.images)

    def random_actions(self, count: int, rng: np.random.Generator) -> Array:
        """Draw uniform actions (count, action): in [-1, 1], or one-hot."""
        if not self.choices:
            return rng.uniform(-1, 1, (count, self.action)).astype(np.float32)
        groups = [np.eye(size, dtype=np.float32)[rng.integers(size, size=count)] for size in self.choices]
        return np.concatenate(groups, axis=1)


class Batch(NamedTuple):
    """n-step transitions, a row each. With n = 3, `next_obs` is s_{t+3} and `discount` γ³ (0 past a termination)."""

    obs: Tensor  # (B, obs)
    action: Tensor  # (B, action)
    reward: Tensor  # (B, 1) discounted sum of task rewards
    discount: Tensor  # (B, 1)
    next_obs: Tensor  # (B, obs)
    skill: Tensor  # (B, skill); (B, 0) for methods without skills
    extras: dict[str, Tensor] = {}  # noqa: RUF012  never written to: `with_extras` makes a new one
    """The data that the objective requested with `Needs` or added in `prepare`."""

    def with_extras(self, **extras: Tensor) -> Batch:
        return self._replace(extras={**self.extras, **extras})

    def to(self, device: torch.device) -> Batch:
        if self.obs.device == device:
            return self
        plain = {name: tensor.to(device) for name, tensor in self._asdict().items() if name != "extras"}
        return Batch(**plain, extras={name: tensor.to(device) for name, tensor in self.extras.items()})


OBSERVED = ("first_obs", "path", "goal", "random_goal")
"""The extras that are observations; encoders apply to them as to `obs`."""


@dataclass(frozen=True)
class Needs:
    """The data that an objective needs from the replay buffer in addition to a plain batch."""

    nstep: int | None = None
    """Steps from `obs` to `next_obs`, instead of the run's setting."""
    batches: int = 1
    """Batches per update: the representation learns from all of them, the policy from the last."""
    skill_start: bool = False
    """`extras["first_obs"]` (B, obs), the first observation of the skill, and `extras["skill_end"]` (B, 1), 1 if the
    skill ends at `next_obs` because another skill is drawn or the episode is over."""
    path: int = 0
    """`extras["path"]` (B, path, obs): this many observations, evenly spaced from the first to the last (or latest)
    observation of the skill."""
    goals: float = 0.0
    """`extras["goal"]` (B, obs), a later observation of the same episode, whose distance in steps is geometric with
    this parameter (at most to the end of the episode); and `extras["random_goal"]` (B, obs), a random observation."""
