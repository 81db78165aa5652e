"""How far a sweep is, from its files alone: any terminal or machine that sees the storage can ask."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cic.runs.untrusted_json import integer, number
from cic.sweep.jobs import Job, read_jobs
from cic.sweep.leases import holder_of
from cic.sweep.storage import Storage

_LINE_BYTES = 300  # of timing.jsonl


@dataclass(frozen=True)
class Progress:
    """One run."""

    job: Job
    state: str
    """waiting, running, done or failed."""
    step: int = 0
    rate: float = 0.0
    """Steps per second, of a run that is running."""
    message: str = ""


@dataclass
class Row:
    """Runs of one method in one domain."""

    method: str
    domain: str
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    rate: float = 0.0
    steps_left: float = 0.0

    @property
    def seconds_left(self) -> float:
        """NaN while nothing says how fast it goes."""
        if not self.steps_left:
            return 0.0
        return self.steps_left / self.rate if self.rate else math.nan

    def add(self, run: Progress) -> None:
        setattr(self, run.state, getattr(self, run.state) + 1)
        self.rate += run.rate
        if run.state in ("waiting", "running"):
            self.steps_left += max(0, run.job.steps - run.step)


def read_status(storage: Storage, now: float | None = None) -> list[Progress]:
    """Every run of every plan in a storage."""
    now = time.time() if now is None else now
    found: dict[str, Progress] = {}
    for job in read_jobs(storage):  # what a run waits for comes before it
        progress = read_progress(storage, job, now)
        failed = [found[other].job.name for other in job.after if other in found and found[other].state == "failed"]
        if failed and progress.state == "waiting":
            progress = replace(progress, state="failed", message=f"not begun, because {failed[0]} failed")
        found[job.folder] = progress
    return list(found.values())


def read_progress(storage: Storage, job: Job, now: float) -> Progress:
    names = set(storage.names(job.folder))
    if "result.json" in names:
        return Progress(job, "done", job.steps)
    holder = holder_of(storage, job.folder) if any(name.startswith(".lease-") for name in names) else None
    status = storage.read_object(f"{job.folder}/status.json") if "status.json" in names else {}
    step = integer(status.get("step"))
    if holder is not None and not holder.is_gone(now):
        return Progress(job, "running", step, read_rate(storage, job))
    if status.get("state") == "failed":
        return Progress(job, "failed", step, message=str(status.get("message", "")))
    return Progress(job, "waiting", step)


def read_running(storage: Storage, job: Job) -> Progress:
    """One that is known to be running."""
    step = integer(storage.read_object(f"{job.folder}/status.json").get("step"))
    return Progress(job, "running", step, read_rate(storage, job))


def read_rate(storage: Storage, job: Job) -> float:
    for line in reversed(storage.tail(f"{job.folder}/timing.jsonl", _LINE_BYTES).splitlines()):
        try:
            content: Any = json.loads(line)
        except ValueError:  # being written, or cut off by the tail
            continue
        rate = number(content.get("time/steps_per_second")) if isinstance(content, dict) else math.nan
        return rate if math.isfinite(rate) else 0.0
    return 0.0


def rows(progress: Iterable[Progress]) -> list[Row]:
    """Per method and domain, in order of name."""
    found: dict[tuple[str, str], Row] = {}
    for run in progress:
        key = run.job.method, run.job.domain
        found.setdefault(key, Row(*key)).add(run)
    return [found[key] for key in sorted(found)]


def total(parts: Sequence[Row]) -> Row:
    whole = Row("all", "")
    for row in parts:
        for name in ("waiting", "running", "done", "failed", "rate", "steps_left"):
            setattr(whole, name, getattr(whole, name) + getattr(row, name))
    return whole
