"""Read the config, status and result of run folders that may be unfinished, damaged or untrusted.

Nothing here raises an error for a bad folder. What cannot be read is left out and listed in `problems`, so that one
broken run does not prevent the report of all others. `cic.runs.contents` reads metrics, trials and pictures.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cic.core.errors import UserError
from cic.core.imports import import_names
from cic.core.paper_scores import TITLES
from cic.runs import study_tables
from cic.runs.header import FORMATS, KINDS, current_settings
from cic.runs.liveness import is_dead
from cic.runs.untrusted import check_folder, integer, number, plain, read_object, walk

_NOT_RUNS = {"pictures", "measured", "checkpoints", "milestones", "inherited", ".git", "__pycache__"}
_TITLE_LETTERS = 40
_STARTING_SECONDS = 600.0
ADVICE = ("unscaled observations",)
"""Reported problems that do not make a run unsound: many runs with such observations learn, as those of jaco."""


@dataclass(frozen=True)
class RunRecord:
    """The content of one run folder when it was read."""

    path: Path
    name: str
    """The path of the folder relative to the folder that was given."""
    kind: str
    config: dict[str, Any]
    title: str
    """The name of the method in tables and figures."""
    version: str = ""
    versions: dict[str, Any] = field(default_factory=dict)
    """The versions of the libraries that the run was made with."""
    command: str = ""
    imports: tuple[str, ...] = ()
    """The files and modules that commands on the run must import."""
    state: str = "unknown"
    """running, finished, interrupted, failed or dead (killed while running); starting before the first status.json
    exists, unknown if it never does."""
    step: int = 0
    message: str = ""
    updated: str = ""
    result: dict[str, Any] | None = None
    problems: tuple[str, ...] = field(default=())
    tables: Path | None = None
    """The folder of the study's tables that the record comes from; None for a run folder."""
    minutes: float = math.nan
    """How long the run took, if its tables contain it."""
    sound: bool | None = None
    """Whether it passed all validity checks, if its tables contain it."""

    @property
    def method(self) -> str:
        if self.kind == "offline" and self.task:
            return f"offline-{plain(self.config.get('learner', 'unknown'))}"
        return plain(self.config.get("objective", "unknown"))

    @property
    def scored(self) -> bool:
        """Whether the run learns a task, so that it has a score: finetuning, and offline training on a task."""
        return self.kind == "finetune" or (self.kind == "offline" and bool(self.task))

    @property
    def scale(self) -> str:
        return plain(self.config.get("scale", ""))

    @property
    def seed(self) -> int:
        return integer(self.config.get("seed"))

    @property
    def steps(self) -> int:
        """The planned number of steps; `step` is the one that was reached."""
        return integer(self.config.get("steps"))

    @property
    def pretrain_steps(self) -> int:
        return integer(self.config.get("pretrain_steps"))

    @property
    def task(self) -> str:
        return plain(self.config.get("task") or "")

    @property
    def domain(self) -> str:
        return plain(self.config.get("domain") or split_task(self.task)[0])

    @property
    def failed_checks(self) -> tuple[str, ...]:
        """Validity checks (`cic.training.validity`) that the run or its pre-training failed, without mere advice."""
        own, before = (self.result or {}).get("problems"), self.config.get("pretrain_problems")
        found = [*(own if isinstance(own, dict) else ()), *(before if isinstance(before, list | tuple) else ())]
        return tuple(name for name in dict.fromkeys(map(plain, found)) if name not in ADVICE)

    @property
    def finished(self) -> bool:
        return self.result is not None

    @property
    def going_on(self) -> bool:
        return self.state in ("running", "starting")

    @property
    def score(self) -> float:
        """The mean return at the end of finetuning; NaN if the run has no usable one."""
        return math.nan if self.result is None else number(self.result.get("return"))


def runs(folder: Path | str = "runs") -> list[RunRecord]:
    """List the runs in a folder with their state and progress.

    Args:
        folder: A run folder or a folder of run folders.

    Returns:
        One record per run, sorted by name. A folder that cannot be read is left out with a warning.

    Example:
        ```python
        for run in cic.runs("runs"):
            print(run.name, run.state, run.step, run.score)
        ```
    """
    found, problems = read([Path(folder)])
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    return found


def read(paths: Sequence[Path]) -> tuple[list[RunRecord], list[str]]:
    """Read every run folder at or below `paths`; return them by name, and a list of problems."""
    runs: list[RunRecord] = []
    problems: list[str] = []
    seen: set[Path] = set()
    for root in paths:
        if not root.exists():
            raise UserError(f"{root} does not exist; give a run folder or a folder of run folders")
        found = [folder for folder in folders(root) if folder.resolve() not in seen]
        studies = [folder for folder in _studies(root) if folder.resolve() not in seen]
        known = any(root.resolve() in path.parents or root.resolve() == path for path in seen)
        if not found and not studies and not known:
            problems.append(f"{root} holds no run folder (a run folder has a config.json)")
        for folder in found:
            seen.add(folder.resolve())
            run = read_run(folder, _name(folder, root))
            if isinstance(run, str):
                problems.append(run)
            else:
                runs.append(run)
                problems.extend(f"{run.name}: {problem}" for problem in run.problems)
        for folder in studies:
            seen.add(folder.resolve())
            for run in read_study(folder, _name(folder, root) if folder != root else ""):
                problems.append(run) if isinstance(run, str) else runs.append(run)
    return sorted(runs, key=lambda run: run.name), problems


def folders(root: Path) -> Iterator[Path]:
    """Find the run folders at or below `root`. Links are not followed: they may lead to any part of the machine."""
    for path, files in walk(root, _NOT_RUNS):
        if "config.json" in files:
            yield path


def _studies(root: Path) -> Iterator[Path]:
    """Folders of tables at or below `root` whose run folders are not there any more."""
    for path, files in walk(root, _NOT_RUNS):
        if study_tables.is_study(files) and next(folders(path), None) is None:
            yield path


def read_run(folder: Path, name: str | None = None) -> RunRecord | str:
    """Read the run in `folder`, or return the reason why it is not a run."""
    name = plain(name or folder.name)
    try:
        check_folder(folder)
    except UserError as error:
        return f"{name}: {error}; the run is left out"
    header = read_object(folder / "config.json")
    if isinstance(header, str):
        return f"{name}: {header}; the run is left out"
    return _record(folder, name, header, _progress(folder, header.get("config")))


def read_study(folder: Path, name: str = "") -> list[RunRecord | str]:
    """The runs in a study's tables, or the reasons why they cannot be read."""
    rows = study_tables.read_rows(folder / study_tables.RUNS)
    if isinstance(rows, str):
        return [f"{name or folder.name}: {rows}"]
    return [_from_row(folder, name, row) for row in rows]


def _from_row(folder: Path, study: str, row: dict[str, str]) -> RunRecord | str:
    own = plain(row.get("run") or "")
    header: dict[str, Any] = {key: row.get(key) or "" for key in ("kind", "title", "version", "command")}
    header |= {key: study_tables.nested(row, key) for key in ("config", "versions")} | {"format": FORMATS[-1]}
    result = study_tables.nested(row, "result") or None
    step = study_tables.from_cell(row.get("step") or "0")
    progress = {"state": plain(row.get("state") or "unknown"), "step": integer(step), "result": result}
    found = _record(folder / own, f"{study}/{own}" if study else own, header, progress)
    if isinstance(found, str):
        return found
    sound = {"true": True, "false": False}.get(row.get("sound") or "")
    return replace(found, tables=folder, minutes=study_tables.to_float(row.get("minutes") or ""), sound=sound)


def _record(folder: Path, name: str, header: dict[str, Any], progress: dict[str, Any]) -> RunRecord | str:
    if header.get("format") not in FORMATS:
        known = " and ".join(map(str, FORMATS))
        return f"{name}: config.json has format {header.get('format')!r}, this version reads {known}; left out"
    kind, config = header.get("kind"), header.get("config")
    if kind not in KINDS or not isinstance(config, dict):
        return f"{name}: config.json is not that of a run of cic; left out"
    missing = [key for key in ("objective", "seed", "task" if kind == "finetune" else "domain") if key not in config]
    if missing:
        return f"{name}: config.json lacks {', '.join(missing)}; the run is left out"
    versions = header.get("versions")
    return RunRecord(
        path=folder,
        name=name,
        kind=kind,
        config=current_settings(header),
        title=_title(header, plain(config["objective"])),
        version=_text(header, "version"),
        versions=versions if isinstance(versions, dict) else {},
        command=_text(header, "command"),
        imports=tuple(map(plain, import_names(header.get("imports")))),
        **progress,
    )


def _title(header: dict[str, Any], method: str) -> str:
    """The title in the run's header, else the one in the paper, else the method's name."""
    title = header.get("title")
    good = isinstance(title, str) and 0 < len(title) <= _TITLE_LETTERS and title.isprintable()
    return str(title) if good else TITLES.get(method, method)


def _progress(folder: Path, config: Any) -> dict[str, Any]:
    """How far the run is. A run with a result.json is finished: it may be killed before its last status is written."""
    problems: list[str] = []
    found: dict[str, Any]
    budget = integer(config.get("steps")) if isinstance(config, dict) else 0
    status, result = read_object(folder / "status.json"), read_object(folder / "result.json")
    if isinstance(status, str):
        if (folder / "status.json").exists():
            problems.append(status)
        status = {"state": "starting" if _is_new(folder) else "unknown"}
    found = {"state": _text(status, "state") or "unknown", "step": integer(status.get("step"))}
    found |= {"message": _text(status, "message"), "updated": _text(status, "updated")}
    if found["state"] == "running" and is_dead(status):
        found["state"] = "dead"
    if not isinstance(result, str):
        step = integer(result.get("step")) or found["step"] or budget
        found |= {"state": "finished", "step": step, "message": "", "result": result}
    elif (folder / "result.json").exists():
        problems.append(f"{result}; its score is left out")
    elif found["state"] == "finished":
        problems.append("status.json states that it finished, but there is no result.json; its score is left out")
    if isinstance(result, str) and found["state"] == "finished":
        found["state"] = "unknown"
    return found | {"problems": tuple(problems)}


def _is_new(folder: Path) -> bool:
    """Whether the run may not have written its first status yet."""
    try:
        return not (folder / "status.json").exists() and (
            time.time() - (folder / "config.json").stat().st_mtime < _STARTING_SECONDS
        )
    except OSError:
        return False


def split_task(task: str) -> tuple[str, str]:
    """ "walker-run" → walker, run. "gymnasium:Hopper-v5" is a domain without named tasks.

    The reward of a prompt is a formula: "walker => speed" → walker, speed.
    """
    if " => " in task:
        domain, _, formula = task.partition(" => ")
        return domain, formula
    domain, _, name = (task, "", "") if ":" in task else task.partition("-")
    return domain, name


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"learning": {"lr": 1}} → {"learning.lr": 1}."""
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


def _text(document: dict[str, Any], key: str) -> str:
    return plain(document.get(key) or "")
