"""The file format of a study's tables, which are kept and committed in place of its run folders.

runs.csv           one row per run: its name and state, `config.*` and `result.*` columns
curves.csv.gz      run, metric, step, value
trials.csv.gz      run, trial, value, return, chosen: the skills that finetuning tried
measurements.json  run → measurement → what `cic reproduce` measured

A cell holds JSON, or plain text that is not valid JSON. An empty cell means that the run has no such key.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from cic.runs.untrusted import open_regular

RUNS, CURVES, TRIALS, MEASUREMENTS = "runs.csv", "curves.csv.gz", "trials.csv.gz", "measurements.json"
CURVE_COLUMNS = ("run", "metric", "step", "value")
TRIAL_COLUMNS = ("run", "trial", "value", "return", "chosen")
_BYTES = 500_000_000


Curves = Mapping[str, Mapping[str, tuple[list[float], list[float]]]]
"""Run → metric → steps and values."""
Trials = Mapping[str, list[tuple[float, float, bool]]]
"""Run → the value of every entry of the skill (NaN if entries differ), return, whether it was chosen."""


def is_study(files: Iterable[str]) -> bool:
    """Return whether a folder with these files holds a study's tables."""
    return {RUNS, CURVES} <= set(files)


def read_rows(path: Path) -> list[dict[str, str]] | str:
    """Return the rows of a CSV file, compressed or not, or what is wrong with the file."""
    try:
        with open_regular(path, _BYTES) as file:
            stream = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            content = stream.read(_BYTES + 1)
        if len(content) > _BYTES:
            return f"{path.name} is larger than {_BYTES / 1e6:g} MB"
        return list(csv.DictReader(io.StringIO(content.decode("utf-8", "replace"), newline="")))
    except FileNotFoundError:
        return f"{path.name} is missing"
    except (OSError, EOFError, ValueError, csv.Error) as error:
        return f"{path.name} cannot be read ({error})"


def read_curves(folder: Path) -> Curves:
    """Return all curves; none if the table is missing or damaged."""
    return _curves(folder / CURVES, _stamp(folder / CURVES))


def read_trials(folder: Path) -> Trials:
    """Return all trials; none if the table is missing or damaged."""
    return _trials(folder / TRIALS, _stamp(folder / TRIALS))


@lru_cache(maxsize=8)
def _curves(path: Path, _: int) -> Curves:
    found: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for row in _complete(path):
        steps, values = found.setdefault(row["run"], {}).setdefault(row["metric"], ([], []))
        steps.append(to_float(row["step"]))
        values.append(to_float(row["value"]))
    return found


@lru_cache(maxsize=8)
def _trials(path: Path, _: int) -> Trials:
    found: dict[str, list[tuple[float, float, bool]]] = {}
    for row in _complete(path):
        found.setdefault(row["run"], []).append((to_float(row["value"]), to_float(row["return"]), row["chosen"] == "1"))
    return found


def _complete(path: Path) -> list[dict[str, str]]:
    rows, columns = read_rows(path), CURVE_COLUMNS if path.name == CURVES else TRIAL_COLUMNS
    return [] if isinstance(rows, str) else [row for row in rows if all(row.get(name) is not None for name in columns)]


def _stamp(path: Path) -> int:
    """Change with the file, so that a table that was written again is read again."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def to_float(text: str) -> float:
    """Return the number in a cell; NaN if there is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Write a CSV file at once; the same rows give the same bytes."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    content = buffer.getvalue().encode()
    return write_bytes(path, gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)


def write_bytes(path: Path, content: bytes) -> Path:
    draft = path.with_name(f".{path.name}.part")
    draft.write_bytes(content)
    os.replace(draft, path)
    return path


def to_cell(value: Any) -> str:
    """Return the value as a cell's text."""
    return value if isinstance(value, str) and value and _json(value) is value else json.dumps(value)


def from_cell(text: str) -> Any:
    """Return the value of a cell that is not empty."""
    return _json(text)


def _json(text: str) -> Any:
    """Return what the JSON text means; any other text as it is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def nested(row: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """Return the columns `PREFIX.*` as a dict: {"config.learning.lr": "1"} → {"learning": {"lr": 1}}."""
    found: dict[str, Any] = {}
    for column, text in row.items():
        if not text or not str(column).startswith(f"{prefix}."):
            continue
        *outer, last = column.removeprefix(f"{prefix}.").split(".")
        inside = found
        for key in outer:
            below = inside.setdefault(key, {})
            inside = below if isinstance(below, dict) else {}
        inside[last] = from_cell(text)
    return found
