"""dm_control's `rewards.tolerance`, in the few shapes that the tasks use.

A shape is made once and then applied to floats or to arrays. Few copies are computed with floats: numpy needs about a
microsecond per operation however few the numbers, which for one copy would cost a third of the walker's physics.
"""

from __future__ import annotations

import math
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Number = TypeVar("Number", float, Floats)


class Shape(Protocol):
    """From a quantity to a reward in [0, 1]."""

    def __call__(self, x: Number, /) -> Number: ...


def ramp(bound: float, margin: float, at_margin: float) -> Shape:
    """1 from `bound` upwards, falling linearly to `at_margin` at `bound - margin` and on to 0."""
    slope = (1.0 - at_margin) / margin
    start = 1.0 - bound * slope

    def shape(x: Number, /) -> Number:
        value = x * slope + start
        if isinstance(value, float):
            return 0.0 if value < 0.0 else 1.0 if value > 1.0 else value
        return np.minimum(np.maximum(value, 0.0), 1.0)

    return shape


def bell(bound: float, margin: float) -> Shape:
    """1 up to `bound`, above it a Gaussian that is worth 0.1 at `bound + margin`."""

    def shape(x: Number, /) -> Number:
        excess = (x - bound) / margin
        if isinstance(excess, float):
            return 1.0 if excess < 0.0 else 0.1 ** (excess * excess)
        # One by one: numpy's own power may round differently, and N copies must give the very bits of N single ones.
        return np.array([1.0 if e < 0.0 else 0.1 ** (e * e) for e in excess.tolist()])

    return shape


def inside(low: float, high: float) -> Shape:
    """1 from `low` to `high`, else 0."""

    def shape(x: Number, /) -> Number:
        if isinstance(x, float):
            return 1.0 if low <= x <= high else 0.0
        return ((low <= x) & (x <= high)).astype(np.float64)

    return shape


def small_control(mean_square: Number) -> Number:
    """Of controls in [-1, 1]: 1 if all are zero, 0.8 if all are full."""
    return 1.0 - 0.2 * mean_square


def length(x: Number, y: Number, z: float | Number = 0.0) -> Number:
    """Of a vector."""
    square = x * x + y * y + z * z
    return math.sqrt(square) if isinstance(square, float) else np.sqrt(square)
