"""Read the metrics, skill trials and pictures of a run. As tolerant of damage as `cic.runs.records`."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cic.runs import study_tables
from cic.runs.records import RunRecord
from cic.runs.untrusted import integer, number, open_regular, read_object

FloatArray = npt.NDArray[np.float64]
PICTURES = {".png": "image/png", ".webp": "image/webp", ".gif": "image/gif", ".mp4": "video/mp4"}
"""The files in `pictures/` that a report shows: images before films."""
_METRICS_BYTES = 1_000_000_000
_LINE_LETTERS = 1_000_000  # a file without line breaks must not fill the memory


class Series(NamedTuple):
    """The values of one metric, by step."""

    steps: FloatArray
    values: FloatArray


@dataclass(frozen=True)
class TrialRecord:
    """A skill that was tried, and its return."""

    skill: tuple[float, ...]
    score: float


@dataclass(frozen=True)
class Selection:
    """The skills that finetuning tried, and the index of the chosen one."""

    chosen: int | None
    trials: tuple[TrialRecord, ...]


def metrics(
    run: RunRecord, wanted: Sequence[str] = ("",), file: str = "metrics.jsonl"
) -> tuple[dict[str, Series], str]:
    """Read the metrics whose name starts with one of `wanted`; also return the problem with the file, or "".

    An incomplete last line is normal while a run is being written. Of a step that was logged twice, the later value
    counts.
    """
    if run.tables is not None:
        return _table_metrics(run, tuple(wanted)), ""
    columns: dict[str, tuple[list[float], list[float]]] = {}
    rows = bad = 0
    prefixes, skipped = tuple(wanted), set[str]()
    try:
        with io.TextIOWrapper(open_regular(run.path / file, _METRICS_BYTES), "utf-8", "replace") as lines:
            for line in iter(lambda: lines.readline(_LINE_LETTERS), ""):
                row = _row(line)
                if row is None:
                    bad += line.endswith("\n")
                    continue
                rows += 1
                _add(row, columns, prefixes, skipped)
    except FileNotFoundError:
        return {}, f"{run.name}: {file} is missing; the run has no curves" if _has_logged(run) else ""
    except OSError as error:
        return {}, f"{run.name}: {file} cannot be read ({error.strerror})"
    series = {key: _series(*column) for key, column in columns.items()}
    if bad:
        return series, f"{run.name}: {bad} broken line(s) in {file} are left out"
    return series, f"{run.name}: {file} is empty; the run has no curves" if not rows and _has_logged(run) else ""


def _table_metrics(run: RunRecord, prefixes: tuple[str, ...]) -> dict[str, Series]:
    curves = study_tables.read_curves(run.tables).get(_row_name(run), {}) if run.tables else {}
    return {key: _series(*column) for key, column in curves.items() if key.startswith(prefixes)}


def _table_selection(run: RunRecord) -> Selection | None:
    rows = study_tables.read_trials(run.tables).get(_row_name(run), []) if run.tables else []
    trials = tuple(TrialRecord(() if math.isnan(value) else (value,), score) for value, score, _ in rows)
    chosen = next((index for index, row in enumerate(rows) if row[2]), None)
    return Selection(chosen, trials) if trials else None


def _row_name(run: RunRecord) -> str:
    """The run's name in the tables."""
    return run.path.relative_to(run.tables).as_posix() if run.tables else run.name


def _has_logged(run: RunRecord) -> bool:
    """Whether the run has reached a step at which it must have logged metrics."""
    return run.finished or run.step > max(0, integer(run.config.get("log_every")))


def _add(
    row: dict[str, Any],
    columns: dict[str, tuple[list[float], list[float]]],
    prefixes: tuple[str, ...],
    skipped: set[str],
) -> None:
    for key, value in row.items():
        if key in skipped or not (value is None or isinstance(value, int | float)):
            continue
        if key not in columns:
            if not key.startswith(prefixes):
                skipped.add(key)
                continue
            columns[key] = [], []
        columns[key][0].append(row["step"])
        columns[key][1].append(number(value))


def _row(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and math.isfinite(number(row.get("step"))) else None


def _series(steps: list[float], values: list[float]) -> Series:
    """Sort by step; of a step that was logged twice, the later value counts."""
    unique, last = np.unique(np.array(steps[::-1], dtype=np.float64), return_index=True)
    return Series(unique, np.array(values[::-1], dtype=np.float64)[last])


def selection(run: RunRecord) -> tuple[Selection | None, str]:
    """Read the skills that a finetuning tried, if any; also return the problem with the file, or ""."""
    if run.tables is not None:
        return _table_selection(run), ""
    document = read_object(run.path / "trials.json")
    if isinstance(document, str):
        return None, f"{run.name}: {document}" if (run.path / "trials.json").exists() else ""
    rows = document.get("trials")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return None, f"{run.name}: trials.json does not contain a list of trials"
    trials = tuple(TrialRecord(_vector(row.get("skill")), number(row.get("return"))) for row in rows)
    chosen = document.get("chosen")
    known = isinstance(chosen, int) and 0 <= chosen < len(trials)
    return Selection(chosen if known else None, trials) if trials else None, ""


def pictures(run: RunRecord) -> list[Path]:
    """The run's images, then its films, by name."""
    kinds = list(PICTURES)
    found = [path for path in (run.path / "pictures").glob("*") if path.suffix in PICTURES]
    return sorted(found, key=lambda path: (kinds.index(path.suffix), path.name))


def _vector(value: Any) -> tuple[float, ...]:
    return tuple(number(item) for item in value) if isinstance(value, list) else ()
