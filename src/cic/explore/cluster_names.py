"""Names of groups of skills, such as "fast forward, upright", from the named quantities of the environment."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cic.core.formula_reward import quantity_values
from cic.core.named_quantities import NamedQuantity, Quantities

Doubles = npt.NDArray[np.float64]

WORDS = {
    "speed": ("backward", "forward"),
    "speed_x": ("backward", "forward"),
    "speed_y": ("to the right", "to the left"),
    "sideways": ("to the right", "to the left"),
    "turn": ("turning right", "turning left"),
    "spin": ("flipping backward", "flipping forward"),
    "upright": ("on its back", "upright"),
    "height": ("low", "tall"),
    "x": ("left", "right"),
    "y": ("bottom", "top"),
    "away": ("near the centre", "far from the centre"),
    "hand_x": ("hand left", "hand right"),
    "hand_y": ("hand near", "hand far"),
    "hand_z": ("hand down", "hand up"),
}
"""Words for a low and a high value of a quantity; by default "low NAME" and "high NAME"."""
CLEAR, FAST, STILL = 0.25, 0.45, 0.1
"""Signals, from 0 to 1, from which a value is named, a motion is fast, and below which a motion is none."""
MOST_WORDS = 2


def mean_signals(quantities: Quantities, observations: npt.NDArray[np.float32]) -> tuple[Doubles, Doubles]:
    """Return the means of the signals and of their absolute values (K, Q) over the second half of paths (K, T, obs)."""
    late = observations[:, observations.shape[1] // 2 :]
    values = quantity_values(quantities, late.reshape(-1, late.shape[2]))
    signals = np.stack([_signal(one, values[one.name].reshape(late.shape[:2])) for one in quantities], axis=2)
    return signals.mean(axis=1), np.abs(signals).mean(axis=1)


def _signal(quantity: NamedQuantity, values: Doubles) -> Doubles:
    """Squash values to [-1, 1]; without a scale, relative to the values of all skills."""
    learned = quantity.scale is None
    centre = values.mean() if learned else quantity.centre
    scaled = (values - centre) / (max(float(values.std()), 1e-9) if quantity.scale is None else quantity.scale)
    return np.asarray(np.tanh(scaled) if quantity.squash else scaled.clip(-1, 1), np.float64)


def name_of(quantities: Quantities, signals: Doubles, sizes: Doubles) -> str:
    """Return the name of skills with these mean signals (Q,) and mean absolute signals (Q,)."""
    moving = np.array(["/s" in quantity.unit for quantity in quantities])
    order = sorted(range(len(quantities)), key=lambda i: (not moving[i], -abs(signals[i])))
    words = [_word(quantities[i], float(signals[i]), bool(moving[i])) for i in order if abs(signals[i]) >= CLEAR]
    words = words[:MOST_WORDS]
    if moving.any() and (sizes[moving] < STILL).all():
        words.append("still")
    return ", ".join(words) or "other"


def _word(quantity: NamedQuantity, signal: float, motion: bool) -> str:
    word = WORDS.get(quantity.name, (f"low {quantity.name}", f"high {quantity.name}"))[signal > 0]
    return f"fast {word}" if motion and abs(signal) >= FAST else word
