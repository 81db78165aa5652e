"""dm_control's `rewards.tolerance`, in the few shapes that the tasks use.

The functions take Python floats of one environment: NumPy needs about a microsecond per operation, so arrays would be
faster only with dozens of environments.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Shape = Callable[[float], float]
"""From a quantity to a reward in [0, 1]."""


def ramp(bound: float, margin: float, at_margin: float) -> Shape:
    """1 from `bound` upwards, falling linearly to `at_margin` at `bound - margin` and further to 0."""
    slope = (1.0 - at_margin) / margin
    start = 1.0 - bound * slope
    return lambda x: min(max(x * slope + start, 0.0), 1.0)


def bell(bound: float, margin: float) -> Shape:
    """1 up to `bound`, above it a Gaussian with the value 0.1 at `bound + margin`."""

    def shape(x: float) -> float:
        excess = max((x - bound) / margin, 0.0)
        return float(0.1 ** (excess * excess))

    return shape


def inside(low: float, high: float) -> Shape:
    """1 from `low` to `high`, else 0."""
    return lambda x: 1.0 if low <= x <= high else 0.0


def small_control(*controls: float) -> float:
    """The reward for small controls in [-1, 1]: 1 if all are zero, 0.8 if all are ±1."""
    return 1.0 - 0.2 * (sum([control * control for control in controls]) / len(controls))


def length(*vector: float) -> float:
    """The length of a vector with these coordinates."""
    return math.sqrt(sum([part * part for part in vector]))
