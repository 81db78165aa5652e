"""Whether a pre-training's skills can be told apart at its end, or its representation collapsed."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from cic.runs.contents import Series
from cic.runs.records import RunRecord, flatten
from cic.runs.untrusted import number

METRICS = ("skill/accuracy", "skill/chance", "representation/loss")
TIMES_CHANCE = 3.0
_LATE = 0.75
_NEAR = 0.005


def is_sound(run: RunRecord, curves: Mapping[str, Series]) -> bool | None:
    """Return whether skills are recognised well above chance over the last quarter of a CIC pre-training.

    A collapsed run also has CIC's released loss at its degenerate value, where all cosines are −1. None for every run
    that trains no such representation, or logged nothing of it.
    """
    settings = flatten(run.config)
    if run.kind != "pretrain" or run.method != "cic" or settings.get("options.representation") is False:
        return None
    accuracy, chance, loss = (_at_the_end(curves.get(name)) for name in METRICS)
    if not math.isfinite(accuracy) or not chance > 0:
        return None
    degenerate = degenerate_loss(number(settings.get("learning.batch")), number(settings.get("options.temperature")))
    stuck = settings.get("options.loss") == "released" and abs(loss - degenerate) < _NEAR
    return accuracy > TIMES_CHANCE * chance and not stuck


def degenerate_loss(batch: float, temperature: float) -> float:
    """Return the released loss of a batch whose cosines are all −1; NaN if it has no such value.

    log(B·e^(−1/T) − e^(1/T)) + 1/T = log(B − e^(2/T))
    """
    if not temperature > 0 or not batch > math.exp(2 / temperature):
        return math.nan
    return math.log(batch - math.exp(2 / temperature))


def unsound_notices(runs: Mapping[str, bool | None]) -> list[str]:
    """Return a warning about the runs among these that are not sound, by name, if there are any."""
    known = [name for name, sound in runs.items() if sound is not None]
    unsound = [name for name in known if not runs[name]]
    if not unsound:
        return []
    return [
        f"{len(unsound)} of {len(known)} CIC pre-trainings are not sound: skill accuracy is at most {TIMES_CHANCE:g} "
        "times chance (collapsed, or too few updates), so comparisons with them are invalid. The released loss "
        "collapses with small batches: use loss=infonce or a larger batch"
    ]


def _at_the_end(series: Series | None) -> float:
    """The mean over the last quarter of the logged steps; NaN if there are none."""
    if series is None or not len(series.steps):
        return math.nan
    first, last = series.steps[0], series.steps[-1]
    return float(np.mean(series.values[series.steps >= first + _LATE * (last - first)]))
