"""dm_control's `rewards.tolerance`, in the few shapes that the tasks use, each as two or three array operations."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_LOG_TENTH = math.log(0.1)  # the Gaussian shapes are worth 0.1 at their margin


def ramp(x: Floats, bound: float, margin: float, at_margin: float) -> Floats:
    """1 from `bound` upwards, falling linearly to `at_margin` at `bound - margin` and on to 0."""
    slope = (1.0 - at_margin) / margin
    return np.minimum(np.maximum(x * slope + (1.0 - bound * slope), 0.0), 1.0)


def bell(x: Floats, bound: float, margin: float) -> Floats:
    """1 up to `bound`, above it a Gaussian that is worth 0.1 at `bound + margin`."""
    excess = np.maximum(x - bound, 0.0)
    excess *= excess
    return np.exp(excess * (_LOG_TENTH / margin**2))


def small_control(control: Floats) -> Floats:
    """(N, action) → (N,): between 0.8 for full controls and 1 for none."""
    cost: Floats = np.minimum(control * control, 1.0).mean(axis=1)
    return 1.0 - 0.2 * cost
