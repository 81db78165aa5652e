"""Which runs are sound: they passed every validity check (`cic.training.validity`), and so did their pre-training.

Runs of earlier versions recorded no checks. Of these, a CIC pre-training is checked with its metrics.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cic.runs.contents import Series, metrics
from cic.runs.records import RunRecord, flatten
from cic.runs.untrusted import number

METRICS = ("skill/accuracy", "skill/chance", "representation/loss")
TIMES_CHANCE = 3.0
_LATE = 0.75
_NEAR = 0.005


def is_sound(run: RunRecord, curves: Mapping[str, Series]) -> bool | None:
    """Return whether a run passed all validity checks; None if that is unknown.

    A CIC pre-training must also recognise skills well above chance over its last quarter, and its released loss must
    not be at its degenerate value, where all cosines are −1.
    """
    if run.failed_checks:
        return False
    checked = True if isinstance((run.result or {}).get("problems"), dict) else run.sound
    settings = flatten(run.config)
    if run.kind != "pretrain" or run.method != "cic" or settings.get("options.representation") is False:
        return checked
    accuracy, chance, loss = (_at_the_end(curves.get(name)) for name in METRICS)
    if not math.isfinite(accuracy) or not chance > 0:
        return checked
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


def soundness(runs: Sequence[RunRecord]) -> dict[str, bool | None]:
    """Return for each run by name whether it is sound. A finetuning is not if its pre-training is among `runs` and is
    not."""
    found = {run.name: is_sound(run, metrics(run, METRICS)[0] if run.method == "cic" else {}) for run in runs}
    bad = {run.path.name for run in runs if run.kind == "pretrain" and found[run.name] is False}
    for run in runs:
        source = run.config.get("pretrained")
        if isinstance(source, str) and Path(source).name in bad:
            found[run.name] = False
    return found


def unsound_notices(runs: Sequence[RunRecord], sound: Mapping[str, bool | None]) -> list[str]:
    """Return a warning about the runs that are not sound, if there are any."""
    known = [run for run in runs if sound[run.name] is not None]
    unsound = [run for run in known if not sound[run.name]]
    if not unsound:
        return []
    reasons = Counter(reason for run in unsound for reason in run.failed_checks or ("skills at chance",))
    listed = ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
    return [
        f"{len(known) - len(unsound)} of {len(known)} checked runs are sound; comparisons with the others are invalid: "
        f"{listed}. problems in result.json has the remedies"
    ]


def marked(label: str, names: Sequence[str], sound: Mapping[str, bool | None]) -> str:
    """Return the label of a row, with the number of its runs that are not sound."""
    bad = sum(sound.get(name) is False for name in names)
    return f"{label} ({bad} of {len(names)} unsound)" if bad else label


def _at_the_end(series: Series | None) -> float:
    """The mean over the last quarter of the logged steps; NaN if there are none."""
    if series is None or not len(series.steps):
        return math.nan
    first, last = series.steps[0], series.steps[-1]
    return float(np.mean(series.values[series.steps >= first + _LATE * (last - first)]))
