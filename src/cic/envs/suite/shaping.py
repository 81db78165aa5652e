"""dm_control's `rewards.tolerance`, in the few shapes that the tasks use.

On plain numbers, one environment at a time: numpy needs about a microsecond per operation however few the numbers, so
arrays would be faster only for dozens of environments.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Shape = Callable[[float], float]
"""From a quantity to a reward in [0, 1]."""


def ramp(bound: float, margin: float, at_margin: float) -> Shape:
    """1 from `bound` upwards, falling linearly to `at_margin` at `bound - margin` and on to 0."""
    slope = (1.0 - at_margin) / margin
    start = 1.0 - bound * slope
    return lambda x: min(max(x * slope + start, 0.0), 1.0)


def bell(bound: float, margin: float) -> Shape:
    """1 up to `bound`, above it a Gaussian that is worth 0.1 at `bound + margin`."""

    def shape(x: float) -> float:
        excess = max((x - bound) / margin, 0.0)
        return float(0.1 ** (excess * excess))

    return shape


def inside(low: float, high: float) -> Shape:
    """1 from `low` to `high`, else 0."""
    return lambda x: 1.0 if low <= x <= high else 0.0


def small_control(*controls: float) -> float:
    """Of controls in [-1, 1]: 1 if all are zero, 0.8 if all are full."""
    return 1.0 - 0.2 * (sum([control * control for control in controls]) / len(controls))


def length(*vector: float) -> float:
    """Of a vector with these coordinates."""
    return math.sqrt(sum([part * part for part in vector]))
