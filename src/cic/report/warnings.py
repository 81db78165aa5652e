"""Warnings about the runs of a report: duplicates, unfinished runs, diverged runs, different budgets."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cic.report.groups import BUDGET_KEYS, RunGroup, settings
from cic.report.tables import many
from cic.runs.records import RunRecord
from cic.runs.untrusted import integer, plain, read_object, read_regular

_SHOWN = 5
_JOBS_BYTES = 100_000_000
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
        source = run.config.get("pretrain_seed", run.config.get("pretrained"))
        identity = [run.kind, run.method, run.task, run.domain, run.seed, source, settings(run)]
        families[json.dumps(identity, sort_keys=True)].append(run)
    kept = []
    for family in families.values():
        best = max(family, key=lambda run: (run.finished, run.step, run.updated))
        kept.append(best)
        if len(family) > 1:
            what = f"{best.title}, {best.task or best.domain}, seed {best.seed}"
            notices.append(f"same seed: {_names(family)} are all {what}; only {best.name} counts")
    return sorted(kept, key=lambda run: run.name)


def missing_runs(roots: Sequence[Path], runs: Sequence[RunRecord], notices: list[str]) -> list[dict[str, Any]]:
    """Return the runs that sweeps in these folders planned and that have no run folder, and note them.

    A sweep lists its runs in `sweep/jobs-*.json`; a run that failed before it started has only a status.json.
    """
    known = {run.path.resolve() for run in runs}
    missing: dict[Path, dict[str, Any]] = {}
    for file in [file for root in roots for file in sorted((root / "sweep").glob("jobs-*.json"))]:
        try:
            listed = json.loads(read_regular(file, _JOBS_BYTES))
        except (OSError, ValueError, RecursionError):
            listed = None
        for job in listed if isinstance(listed, list) else ():
            name = plain(job.get("folder")) if isinstance(job, dict) else ""
            path = file.parents[1].resolve() / name
            if not name or path in known:
                continue
            status, config = read_object(path / "status.json"), job.get("config")
            failed = isinstance(status, dict) and status.get("state") == "failed"
            config = config if isinstance(config, dict) else {}
            missing[path] = {
                "run": name,
                "kind": plain(job.get("kind")),
                "method": plain(job.get("method")),
                "task": plain(config.get("task") or config.get("domain")),
                "seed": integer(config.get("seed")),
                "state": "failed" if failed else "missing",
                "message": plain(status.get("message", "")) if isinstance(status, dict) else "",
            }
    for run in missing.values():
        reason = f"failed before it started: {run['message']}" if run["state"] == "failed" else "not started"
        notices.append(f"{run['run']} of the sweep has no result ({reason})")
    return list(missing.values())


def same_seeds(groups: Sequence[RunGroup], notices: list[str]) -> None:
    """Warn about runs of one row that share a seed but started from different checkpoints."""
    families: dict[tuple[Any, ...], list[RunRecord]] = defaultdict(list)
    for group in groups:
        for run in group.runs:
            families[run.kind, group.label, run.task or run.domain, run.seed].append(run)
    for (_, label, where, seed), family in families.items():
        if len(family) > 1:
            what = f"{label}, {where}, seed {seed}"
            notices.append(f"same seed: {_names(family)} are all {what}, from different checkpoints; all of them count")


def states(runs: Sequence[RunRecord], notices: list[str]) -> None:
    """List the runs that have no score, by reason."""
    unfinished = [run for run in runs if not run.finished]
    for state in dict.fromkeys([*_STATES, *sorted({run.state for run in unfinished})]):
        if found := [run for run in unfinished if run.state == state]:
            meaning = _STATES.get(state, f'in state "{state}"')
            notices.append(
                f"{many(len(found), 'run')} {meaning}, included in the curves but not in the scores: {_names(found)}"
            )
    lost = [run for run in runs if run.scored and run.finished and not math.isfinite(run.score)]
    if lost:
        methods = ", ".join(sorted({run.title for run in lost}))
        notices.append(
            f"{many(len(lost), 'finished run')} with a NaN or infinite return are excluded, so the scores of {methods} "
            f"are too high: {_names(lost)}"
        )


def budgets(groups: Sequence[RunGroup], notices: list[str]) -> None:
    """Warn if rows of one table have different budgets."""
    for key in BUDGET_KEYS:
        rows: dict[str, list[str]] = defaultdict(list)
        for group in groups:
            values = {str(run.config.get(key)) for run in group.runs}
            if key != "pretrain_steps" or not values <= {"0", "None"}:  # from scratch
                rows[" and ".join(sorted(values))].append(group.label)
        if len(rows) > 1:
            parts = "; ".join(f"{value}: {', '.join(labels)}" for value, labels in rows.items())
            notices.append(f"rows differ in {key}, so compare them with care ({parts})")


def _names(runs: Sequence[RunRecord]) -> str:
    """List names with the run's message, or the time of its last write if it may have been killed."""
    names = []
    for run in runs[:_SHOWN]:
        remark = run.message or (f"last written {run.updated}" if run.state == "running" and run.updated else "")
        names.append(f"{run.name} ({remark})" if remark else run.name)
    return ", ".join(names) + (f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else "")
