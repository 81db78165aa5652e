"""The read side of run folders: everything that a report needs, from folders that may be moved, unfinished or damaged.

Nothing here raises for a bad folder: what cannot be read is left out and said in `problems`, so that one broken run
does not cost the report of two hundred good ones.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError

FORMAT = 1
FloatArray = npt.NDArray[np.float64]
_NOT_RUNS = {"pictures", "videos", "checkpoints", "milestones", "inherited", ".git", "__pycache__"}


class Series(NamedTuple):
    """One metric: its value at each logged step, in order of steps."""

    steps: FloatArray
    values: FloatArray


@dataclass(frozen=True)
class Trial:
    """One candidate of the skill selection and the return that it got."""

    skill: tuple[float, ...]
    score: float


@dataclass(frozen=True)
class Trials:
    method: str
    chosen: int | None
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Run:
    """One run folder as it was when it was read."""

    path: Path
    name: str
    """The folder's name below the folder that was asked for."""
    kind: str
    config: dict[str, Any]
    version: str = ""
    state: str = "unknown"
    step: int = 0
    message: str = ""
    updated: str = ""
    result: dict[str, Any] | None = None
    problems: tuple[str, ...] = field(default=())

    @property
    def method(self) -> str:
        return str(self.config.get("objective", "unknown"))

    @property
    def scale(self) -> str:
        return str(self.config.get("scale", ""))

    @property
    def seed(self) -> int:
        return _integer(self.config.get("seed"))

    @property
    def steps(self) -> int:
        """The budget, not what was reached."""
        return _integer(self.config.get("steps"))

    @property
    def pretrain_steps(self) -> int:
        return _integer(self.config.get("pretrain_steps"))

    @property
    def task(self) -> str:
        return str(self.config.get("task", ""))

    @property
    def domain(self) -> str:
        return str(self.config.get("domain") or split_task(self.task)[0])

    @property
    def finished(self) -> bool:
        return self.state == "finished" and self.result is not None

    @property
    def score(self) -> float:
        """The mean return at the end of finetuning; NaN if the run has none that can be used."""
        if not self.finished or self.result is None:
            return math.nan
        return _number(self.result.get("return"))


def read(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Every run folder at or below `paths`, ordered by name, and what could not be read."""
    runs: list[Run] = []
    problems: list[str] = []
    seen: set[Path] = set()
    for root in paths:
        if not root.exists():
            raise UserError(f"{root} does not exist; give a run folder or a folder of run folders")
        found = [folder for folder in folders(root) if folder.resolve() not in seen]
        if not found and not any(root.resolve() in path.parents or root.resolve() == path for path in seen):
            problems.append(f"{root} holds no run folder (a run folder has a config.json)")
        for folder in found:
            seen.add(folder.resolve())
            run = read_run(folder, _name(folder, root))
            if isinstance(run, str):
                problems.append(run)
            else:
                runs.append(run)
                problems.extend(f"{run.name}: {problem}" for problem in run.problems)
    return sorted(runs, key=lambda run: run.name), problems


def folders(root: Path) -> Iterator[Path]:
    """Run folders at or below `root`, through links too."""
    visited: set[str] = set()
    for path, below, files in os.walk(root, followlinks=True):
        real = os.path.realpath(path)
        if real in visited:  # a link that leads back up
            below.clear()
            continue
        visited.add(real)
        below[:] = sorted(set(below) - _NOT_RUNS)
        if "config.json" in files or "config.json" in below:
            yield Path(path)


def read_run(folder: Path, name: str | None = None) -> Run | str:
    """The run in `folder`, or the reason why it is none."""
    name = name or folder.name
    document = _json(folder / "config.json")
    if isinstance(document, str):
        return f"{name}: {document}; the run is left out"
    if document.get("format") != FORMAT:
        return f"{name}: config.json has format {document.get('format')!r}, this version reads {FORMAT}; left out"
    kind, config = document.get("kind"), document.get("config")
    if kind not in ("pretrain", "finetune") or not isinstance(config, dict):
        return f"{name}: config.json is not that of a pretrain or finetune run; left out"
    missing = [key for key in ("objective", "seed", "task" if kind == "finetune" else "domain") if key not in config]
    if missing:
        return f"{name}: config.json lacks {', '.join(missing)}; the run is left out"

    problems = []
    status, result = _json(folder / "status.json"), _json(folder / "result.json")
    if isinstance(status, str):
        if (folder / "status.json").exists():
            problems.append(status)
        status = {"state": "unknown" if isinstance(result, str) else "finished"}
    if isinstance(result, str):
        if (folder / "result.json").exists():
            problems.append(f"{result}; its score is left out")
        elif status.get("state") == "finished":
            problems.append("says that it finished but has no result.json; its score is left out")
    return Run(
        path=folder,
        name=name,
        kind=kind,
        config=config,
        version=str(document.get("version", "")),
        state=str(status.get("state", "unknown")),
        step=_integer(status.get("step")),
        message=str(status.get("message") or ""),
        updated=str(status.get("updated") or ""),
        result=None if isinstance(result, str) else result,
        problems=tuple(problems),
    )


def metrics(run: Run, wanted: Sequence[str] = ("",), file: str = "metrics.jsonl") -> tuple[dict[str, Series], str]:
    """The metrics whose key starts as one of `wanted`, and what was wrong with the file ("" if nothing).

    A cut-off last line is normal: the run is being written. A step that was logged twice (a resumed run) counts once,
    with its later value.
    """
    prefixes, skipped = tuple(wanted), set[str]()
    path = run.path / file
    columns: dict[str, tuple[list[float], list[float]]] = {}
    bad = 0
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                row = _row(line)
                if row is None:
                    bad += line.endswith("\n")
                    continue
                for key, value in row.items():
                    if key in skipped or not (value is None or isinstance(value, int | float)):
                        continue
                    if key not in columns:
                        if not key.startswith(prefixes):
                            skipped.add(key)
                            continue
                        columns[key] = [], []
                    columns[key][0].append(row["step"])
                    columns[key][1].append(value if isinstance(value, float) else _number(value))
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"{run.name}: {file} cannot be read ({error.strerror})"
    series = {key: _series(*column) for key, column in columns.items()}
    return series, f"{run.name}: {bad} broken line(s) in {file} are left out" if bad else ""


def trials(run: Run) -> Trials | None:
    """The skill selection, if the run had one."""
    document = _json(run.path / "trials.json")
    if isinstance(document, str) or not isinstance(document.get("trials"), list):
        return None
    rows = [row for row in document["trials"] if isinstance(row, dict)]
    candidates = tuple(Trial(_vector(row.get("skill")), _number(row.get("return"))) for row in rows)
    chosen = document.get("chosen")
    known = isinstance(chosen, int) and 0 <= chosen < len(candidates)
    return Trials(str(document.get("method", "")), chosen if known else None, candidates) if candidates else None


def media(run: Run) -> list[Path]:
    """The run's pictures, then its videos, each in order of name."""
    return [*sorted((run.path / "pictures").glob("*.png")), *sorted((run.path / "videos").glob("*.mp4"))]


def split_task(task: str) -> tuple[str, str]:
    """ "walker-run" → walker, run. "gymnasium:Hopper-v5" is a domain without named tasks."""
    domain, _, name = (task, "", "") if ":" in task else task.partition("-")
    return domain, name


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"agent": {"lr": 1}} → {"agent.lr": 1}."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def _name(folder: Path, root: Path) -> str:
    below = folder.relative_to(root)
    return str(below) if below.parts else folder.resolve().name


def _json(path: Path) -> dict[str, Any] | str:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        return f"{path.name} cannot be read ({error.strerror})"
    except (ValueError, RecursionError):
        return f"{path.name} is not valid JSON"
    return document if isinstance(document, dict) else f"{path.name} is not a JSON object"


def _row(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and math.isfinite(_number(row.get("step"))) else None


def _series(steps: list[float], values: list[float]) -> Series:
    """In order of steps; of a step that was logged twice, the later value."""
    unique, last = np.unique(np.array(steps[::-1], dtype=np.float64), return_index=True)
    return Series(unique, np.array(values[::-1], dtype=np.float64)[last])


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:  # JSON has integers without end
        return math.nan


def _integer(value: Any) -> int:
    number = _number(value)
    return int(number) if math.isfinite(number) else 0


def _vector(value: Any) -> tuple[float, ...]:
    return tuple(_number(item) for item in value) if isinstance(value, list) else ()
