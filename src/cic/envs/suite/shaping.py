"""dm_control's `rewards.tolerance`, in the few shapes that the tasks use.

Every function takes floats or arrays. Few copies are computed with floats: numpy needs about a microsecond per
operation however few the numbers, which for one copy would cost a third of the walker's physics.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Number = TypeVar("Number", float, Floats)


def ramp(x: Number, bound: float, margin: float, at_margin: float) -> Number:
    """1 from `bound` upwards, falling linearly to `at_margin` at `bound - margin` and on to 0."""
    slope = (1.0 - at_margin) / margin
    value = x * slope + (1.0 - bound * slope)
    if isinstance(value, float):
        return 0.0 if value < 0.0 else 1.0 if value > 1.0 else value
    return np.minimum(np.maximum(value, 0.0), 1.0)


def bell(x: Number, bound: float, margin: float) -> Number:
    """1 up to `bound`, above it a Gaussian that is worth 0.1 at `bound + margin`."""
    excess = (x - bound) / margin
    if isinstance(excess, float):
        return 1.0 if excess < 0.0 else 0.1 ** (excess * excess)
    # One by one: numpy's own power may round differently, and N copies must give the very bits of N single ones.
    return np.array([1.0 if e < 0.0 else 0.1 ** (e * e) for e in excess.tolist()])


def inside(x: Number, low: float, high: float) -> Number:
    """1 from `low` to `high`, else 0."""
    if isinstance(x, float):
        return 1.0 if low <= x <= high else 0.0
    return ((low <= x) & (x <= high)).astype(np.float64)


def length(*entries: Number) -> Number:
    """Of a vector."""
    squares = entries[0] * entries[0]
    for entry in entries[1:]:
        squares = squares + entry * entry
    return math.sqrt(squares) if isinstance(squares, float) else np.sqrt(squares)


def small_control(mean_square: Number) -> Number:
    """Of controls in [-1, 1]: 1 if all are zero, 0.8 if all are full."""
    return 1.0 - 0.2 * mean_square
