"""What deserves a word before anyone believes the numbers: twins, unfinished runs, unequal budgets, diverged runs."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from cic.report.budgets import KEYS
from cic.report.groups import Group, settings
from cic.runs.records import RunRecord

_SHOWN = 5
_STATES = {
    "starting": "just starting",
    "running": "still going on, unless killed",
    "dead": "killed while going on (`cic runs` says how to continue)",
    "interrupted": "interrupted",
    "failed": "failed",
    "unknown": "of unknown state (no readable status.json or result.json)",
}


def without_twins(runs: Sequence[RunRecord], notices: list[str]) -> list[RunRecord]:
    """Two runs of one config are one experiment: counting both would make the intervals too narrow."""
    families: dict[str, list[RunRecord]] = defaultdict(list)
    for run in runs:
        families[json.dumps([*_setup(run), _origin(run), settings(run)], sort_keys=True)].append(run)
    kept = []
    for family in families.values():
        best = max(family, key=lambda run: (run.finished, run.step, run.updated))
        kept.append(best)
        if len(family) > 1:
            what = f"{best.title}, {best.task or best.domain}, seed {best.seed}"
            notices.append(f"same seed: {_names(family)} are all {what}; only {best.name} counts")
    return sorted(kept, key=lambda run: run.name)


def same_seeds(groups: Sequence[Group], notices: list[str]) -> None:
    """Within a row, a seed that comes again is another experiment (another checkpoint), but seldom what was meant."""
    for group in groups:
        families: dict[tuple[Any, ...], list[RunRecord]] = defaultdict(list)
        for run in group.runs:
            families[run.task, run.domain, run.seed].append(run)
        for (task, domain, seed), family in families.items():
            if len(family) > 1:
                what = f"{group.label}, {task or domain}, seed {seed}"
                notices.append(f"same seed: {_names(family)} are all {what}, started differently; all of them count")


def states(runs: Sequence[RunRecord], notices: list[str]) -> None:
    """Which runs have no score, and why."""
    for state in dict.fromkeys([*_STATES, *sorted({run.state for run in runs if not run.finished})]):
        found = [run for run in runs if run.state == state and not run.finished]
        if found:
            meaning = _STATES.get(state, f'in state "{state}"')
            notices.append(
                f"{len(found)} run(s) {meaning}, which count in the curves but not in the scores: {_names(found)}"
            )
    lost = [run for run in runs if run.kind == "finetune" and run.finished and not math.isfinite(run.score)]
    if lost:
        flattered = ", ".join(sorted({run.title for run in lost}))
        notices.append(
            f"{len(lost)} finished run(s) whose return is not a number are left out, which flatters {flattered}: "
            f"{_names(lost)}"
        )


def budgets(groups: Sequence[Group], notices: list[str]) -> None:
    """Rows that were not run alike stand side by side all the same; the reader must know."""
    for key in KEYS:
        rows: dict[str, list[str]] = defaultdict(list)
        for group in groups:
            values = Counter(str(run.config.get(key)) for run in group.runs)
            if key == "pretrain_steps" and set(values) <= {"0", "None"}:
                continue  # from scratch: nothing to be equal to
            rows[" and ".join(sorted(values))].append(group.label)
        if len(rows) > 1:
            parts = "; ".join(f"{value}: {', '.join(labels)}" for value, labels in rows.items())
            notices.append(f"rows differ in {key}, so compare them with care ({parts})")


def _setup(run: RunRecord) -> list[Any]:
    return [run.kind, run.method, run.task, run.domain, run.seed, run.scale, run.steps, run.pretrain_steps]


def _origin(run: RunRecord) -> Any:
    return run.config.get("pretrain_seed", run.config.get("pretrained"))


def _names(runs: Sequence[RunRecord]) -> str:
    return ", ".join(map(_name, runs[:_SHOWN])) + (f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else "")


def _name(run: RunRecord) -> str:
    """With its message, or when a run that may have been killed last gave a sign of life."""
    remark = run.message or (f"last written {run.updated}" if run.state == "running" and run.updated else "")
    return f"{run.name} ({remark})" if remark else run.name
