"""Runs → a study's tables (`cic.runs.study_tables`): what a study commits in place of run folders."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cic.report.collapse import is_sound
from cic.report.learning_curves import POINTS, finite, thin
from cic.runs import study_tables
from cic.runs.contents import Series, metrics, selection
from cic.runs.records import RunRecord, flatten

_DROPPED = ("result.skill", "result.checked.skill", "result.checked.tuned")
"""Vectors that nothing is computed from."""
_PAUSE = 60.0  # seconds between two log lines of a run that was stopped and resumed
_NOT_KEPT = {"update"}
_EXACT = ("eval/", "zero_shot/", "coverage/")
"""Metrics that scores are computed from: every digit is kept at logged steps. Others are diagnostics: six digits."""
_FIXED = ("run", "kind", "title", "state", "step", "minutes", "sound", "version", "command")


def write_study(
    folder: Path,
    runs: Sequence[RunRecord],
    measurements: Mapping[str, Mapping[str, Any]] | None = None,
    points: int | None = POINTS,
) -> list[Path]:
    """Write the tables of finished and unfinished runs and return their paths.

    Curves of more than `points` points are averaged in as many bins, which is all that a figure shows; None keeps
    every logged step. `measurements` are those of each run by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, str]] = []
    curves: list[tuple[Any, ...]] = []
    trials: list[tuple[Any, ...]] = []
    for run in runs:
        logged = metrics(run)[0]
        rows.append(_row(run, logged))
        for metric, series in logged.items():
            if metric not in _NOT_KEPT:
                curves += [(run.name, metric, *point) for point in _points(metric, series, points)]
        tried = selection(run)[0]
        for index, trial in enumerate(tried.trials if tried else ()):
            value = repr(trial.skill[0]) if len(set(trial.skill)) == 1 else ""
            trials.append((run.name, index, value, repr(trial.score), int(tried is not None and index == tried.chosen)))
    columns = [*_FIXED, *sorted({column for row in rows for column in row} - {*_FIXED})]
    lines = [[row.get(column, "") for column in columns] for row in rows]
    made = [
        study_tables.write_rows(folder / study_tables.RUNS, columns, lines),
        study_tables.write_rows(folder / study_tables.CURVES, study_tables.CURVE_COLUMNS, curves),
    ]
    if trials:
        made.append(study_tables.write_rows(folder / study_tables.TRIALS, study_tables.TRIAL_COLUMNS, trials))
    if measurements:
        text = json.dumps(measurements, sort_keys=True).replace('}}, "', '}},\n"') + "\n"
        made.append(study_tables.write_bytes(folder / study_tables.MEASUREMENTS, text.encode()))
    return made


def _row(run: RunRecord, logged: Mapping[str, Series]) -> dict[str, str]:
    """One row of runs.csv, without paths of the machine that the run was made on."""
    config = dict(run.config)
    if isinstance(config.get("pretrained"), str):
        config["pretrained"] = Path(config["pretrained"]).name
    sound = is_sound(run, logged)
    row = {
        "run": run.name,
        "kind": run.kind,
        "title": run.title,
        "state": run.state,
        "step": str(run.step),
        "minutes": _minutes(run),
        "sound": "" if sound is None else str(sound).lower(),
        "version": run.version,
        "command": re.sub(r" --out \S+", "", run.command),
    }
    columns = {"config": config, "result": run.result or {}, "versions": run.versions}
    flat = {f"{name}.{key}": value for name, part in columns.items() for key, value in flatten(part).items()}
    return row | {key: study_tables.to_cell(value) for key, value in flat.items() if key not in _DROPPED}


def _points(metric: str, series: Series, points: int | None) -> list[tuple[str, str]]:
    """Step and value as text."""
    shown = series if points is None else thin(finite(series), points)
    exact = metric.startswith(_EXACT) and len(shown.steps) == len(series.steps)
    return [
        (str(int(step)) if step == int(step) else f"{step:.8g}", repr(float(value)) if exact else f"{value:.6g}")
        for step, value in zip(*shown, strict=True)
    ]


def _minutes(run: RunRecord) -> str:
    """How long the run took, without the time for which it was stopped; empty if it logged no times."""
    if run.tables is not None:
        return f"{run.minutes:.2f}" if math.isfinite(run.minutes) else ""
    times = metrics(run, ("time/unix",), "timing.jsonl")[0].get("time/unix")
    if times is None or not run.finished:
        return ""
    passed = np.diff(times.values)
    return f"{passed[passed < _PAUSE].sum() / 60:.2f}"
