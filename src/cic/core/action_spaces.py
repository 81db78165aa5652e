"""Action spaces: which are supported, and the conversion of a policy's actions to the environment's own.

The actions of a policy are numbers in [-1, 1], or one-hot vectors with one group of entries per choice.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from cic.core.errors import UserError
from cic.core.types import Array

ActionSpace: TypeAlias = Box | Discrete | MultiDiscrete | MultiBinary
MAX_CHOICES = 1_000
"""The most entries of one-hot actions."""


def supported(space: Any, name: str) -> ActionSpace:
    """Return the action space, if it is supported; otherwise raise a `UserError` that starts with `name`."""
    if not isinstance(space, ActionSpace):
        raise UserError(
            f"{name}: actions must be Box, Discrete, MultiDiscrete or MultiBinary, not {type(space).__name__}: "
            "convert them with gymnasium.wrappers.TransformAction"
        )
    if isinstance(space, Box) and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise UserError(f"{name}: the action space must be bounded, so that [-1, 1] can be scaled to it")
    if not isinstance(space, Box) and size(space) > MAX_CHOICES:
        raise UserError(f"{name}: its discrete actions have {size(space):,} choices; the most are {MAX_CHOICES:,}")
    return space


def choices(space: ActionSpace) -> tuple[int, ...]:
    """Return the sizes of the groups of one-hot actions; none for continuous actions."""
    if isinstance(space, Box):
        return ()
    if isinstance(space, Discrete):
        return (int(space.n),)
    if isinstance(space, MultiDiscrete):
        return tuple(int(count) for count in np.ravel(space.nvec))
    return (2,) * int(np.prod(space.shape))


def size(space: ActionSpace) -> int:
    """Return the length of the action vectors of a policy."""
    return int(np.prod(space.shape)) if isinstance(space, Box) else sum(choices(space))


def own_action(space: ActionSpace, action: Array) -> Any:
    """Convert actions of a policy (…, action) to the environment's own: scaled, or the index of each largest entry."""
    if isinstance(space, Box):
        return scale_action(space, action)
    groups = np.split(action, np.cumsum(choices(space))[:-1], axis=-1)
    chosen = np.stack([group.argmax(axis=-1) for group in groups], axis=-1)
    if isinstance(space, Discrete):
        return chosen[..., 0].astype(space.dtype) + space.start
    own = chosen.reshape(*chosen.shape[:-1], *space.shape).astype(space.dtype)
    return own + space.start.astype(space.dtype) if isinstance(space, MultiDiscrete) else own


def is_normalised(space: Box) -> bool:
    """Whether actions of the space lie in [-1, 1] already."""
    return bool((space.low == -1).all() and (space.high == 1).all())


def scale_action(space: Box, action: Array) -> npt.NDArray[Any]:
    """Scale actions in [-1, 1], (…, action), to the bounds, the shape and the type of the environment's own space."""
    shaped = np.clip(action, -1.0, 1.0).reshape(*np.shape(action)[:-1], *space.shape)
    if is_normalised(space):
        return shaped.astype(space.dtype)
    share = (shaped.astype(np.float64) + 1.0) / 2.0
    return np.asarray((space.low + share * (space.high - space.low)).astype(space.dtype))
