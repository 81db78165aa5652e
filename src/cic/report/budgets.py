"""What a run was given: its scale and the steps of its two phases. Runs with other budgets answer other questions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cic.runs.records import RunRecord

KEYS = ("scale", "steps", "pretrain_steps")


class Budget(NamedTuple):
    scale: str
    steps: int
    pretrain_steps: int
    """0 where nothing was pre-trained."""


def divide(runs: Sequence[RunRecord]) -> dict[Budget, list[RunRecord]]:
    """Finetuning runs by budget, the one with most scores first. A run from scratch stands beside the pre-trained ones
    of its scale and steps, of which it is the measure."""
    usual: dict[tuple[str, int], int] = {}
    for place in {(run.scale, run.steps) for run in runs}:
        beside = [run.pretrain_steps for run in runs if (run.scale, run.steps) == place and run.pretrain_steps]
        usual[place] = _commonest(beside) if beside else 0
    parts: dict[Budget, list[RunRecord]] = {}
    for run in runs:
        place = run.scale, run.steps
        parts.setdefault(Budget(*place, run.pretrain_steps or usual[place]), []).append(run)
    return dict(sorted(parts.items(), key=lambda part: _weight(*part), reverse=True))


def _commonest(values: Iterable[int]) -> int:
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value))


def _weight(budget: Budget, runs: Sequence[RunRecord]) -> tuple[int, int, int, int, str]:
    scored = sum(math.isfinite(run.score) for run in runs)
    return scored, len(runs), budget.steps, budget.pretrain_steps, budget.scale


def words(budget: Budget, beside: Budget | None = None) -> list[str]:
    """What the budget is, or in what it differs from `beside`."""
    parts = {"scale": f"{budget.scale or 'no'} scale", "steps": f"{count(budget.steps)} steps"}
    if budget.pretrain_steps:
        parts["pretrain_steps"] = f"{count(budget.pretrain_steps)} pre-trained"
    return [text for key, text in parts.items() if not beside or getattr(budget, key) != getattr(beside, key)]


def count(number: float) -> str:
    """100000 → "100k"."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{letter}"
    return f"{number:.4g}"
