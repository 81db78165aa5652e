"""Warnings about the runs of a report: duplicates, unfinished runs, diverged runs, different budgets."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from cic.report.groups import BUDGET_KEYS, RunGroup, settings
from cic.runs.records import RunRecord

_SHOWN = 5
_STATES = {
    "starting": "starting",
    "running": "in progress, unless killed",
    "dead": "killed while in progress (`cic runs` shows how to resume)",
    "interrupted": "interrupted",
    "failed": "failed",
    "unknown": "in an unknown state (no readable status.json or result.json)",
}


def without_duplicates(runs: Sequence[RunRecord], notices: list[str]) -> list[RunRecord]:
    """Keep one of several runs with the same config: counting all of them makes the intervals too narrow."""
    families: dict[str, list[RunRecord]] = defaultdict(list)
    for run in runs:
        setup = [run.kind, run.method, run.task, run.domain, run.seed, run.scale, run.steps, run.pretrain_steps]
        source = run.config.get("pretrain_seed", run.config.get("pretrained"))
        families[json.dumps([*setup, source, settings(run)], sort_keys=True)].append(run)
    kept = []
    for family in families.values():
        best = max(family, key=lambda run: (run.finished, run.step, run.updated))
        kept.append(best)
        if len(family) > 1:
            what = f"{best.title}, {best.task or best.domain}, seed {best.seed}"
            notices.append(f"same seed: {_names(family)} are all {what}; only {best.name} counts")
    return sorted(kept, key=lambda run: run.name)


def same_seeds(groups: Sequence[RunGroup], notices: list[str]) -> None:
    """Warn about runs of one row that share a seed but started from different checkpoints."""
    for group in groups:
        families: dict[tuple[Any, ...], list[RunRecord]] = defaultdict(list)
        for run in group.runs:
            families[run.task, run.domain, run.seed].append(run)
        for (task, domain, seed), family in families.items():
            if len(family) > 1:
                what = f"{group.label}, {task or domain}, seed {seed}"
                notices.append(
                    f"same seed: {_names(family)} are all {what}, from different checkpoints; all of them count"
                )


def states(runs: Sequence[RunRecord], notices: list[str]) -> None:
    """List the runs that have no score, by reason."""
    for state in dict.fromkeys([*_STATES, *sorted({run.state for run in runs if not run.finished})]):
        found = [run for run in runs if run.state == state and not run.finished]
        if found:
            meaning = _STATES.get(state, f'in state "{state}"')
            notices.append(
                f"{len(found)} run(s) {meaning}, included in the curves but not in the scores: {_names(found)}"
            )
    lost = [run for run in runs if run.kind == "finetune" and run.finished and not math.isfinite(run.score)]
    if lost:
        methods = ", ".join(sorted({run.title for run in lost}))
        notices.append(
            f"{len(lost)} finished run(s) with a NaN or infinite return are excluded, so the scores of {methods} are "
            f"too high: {_names(lost)}"
        )


def budgets(groups: Sequence[RunGroup], notices: list[str]) -> None:
    """Warn if rows of one table have different budgets."""
    for key in BUDGET_KEYS:
        rows: dict[str, list[str]] = defaultdict(list)
        for group in groups:
            values = Counter(str(run.config.get(key)) for run in group.runs)
            if key == "pretrain_steps" and set(values) <= {"0", "None"}:
                continue  # from scratch
            rows[" and ".join(sorted(values))].append(group.label)
        if len(rows) > 1:
            parts = "; ".join(f"{value}: {', '.join(labels)}" for value, labels in rows.items())
            notices.append(f"rows differ in {key}, so compare them with care ({parts})")


def _names(runs: Sequence[RunRecord]) -> str:
    return ", ".join(map(_name, runs[:_SHOWN])) + (f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else "")


def _name(run: RunRecord) -> str:
    """Return the name with the run's message, or the time of its last write if it may have been killed."""
    remark = run.message or (f"last written {run.updated}" if run.state == "running" and run.updated else "")
    return f"{run.name} ({remark})" if remark else run.name
