"""Progress of a sweep, read from its files: any machine that sees the store can show it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cic.runs.liveness import is_dead
from cic.runs.untrusted_json import integer, number, plain
from cic.sweep.specs import RunSpec, read_specs
from cic.sweep.store import Store

_LINE_BYTES = 300  # of timing.jsonl


@dataclass(frozen=True)
class RunProgress:
    """Progress of one run."""

    spec: RunSpec
    state: str
    """waiting, running, done or failed."""
    step: int = 0
    rate: float = 0.0
    """Steps per second while the run is running."""
    message: str = ""


@dataclass
class GroupProgress:
    """Progress of the runs of one method in one domain."""

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
        """NaN while no rate is known."""
        if not self.steps_left:
            return 0.0
        return self.steps_left / self.rate if self.rate else math.nan

    def add(self, run: RunProgress) -> None:
        setattr(self, run.state, getattr(self, run.state) + 1)
        self.rate += run.rate
        if run.state in ("waiting", "running"):
            self.steps_left += max(0, run.spec.steps - run.step)


def read_status(store: Store) -> list[RunProgress]:
    """Return the progress of every run of every plan in a store."""
    return read_progress(store, read_specs(store), {})


def read_progress(store: Store, specs: Sequence[RunSpec], results: Mapping[str, Any]) -> list[RunProgress]:
    """Return the progress of runs. The files of runs that are among the `results` are not read."""
    present = set(store.names(""))
    found: dict[str, RunProgress] = {}
    for spec in specs:  # dependencies come first
        failed = [
            found[folder].spec.name for folder in spec.after if folder in found and found[folder].state == "failed"
        ]
        if spec.folder in results:
            state = "done" if results[spec.folder].state == "done" else "failed"
            progress = RunProgress(spec, state, message=results[spec.folder].message)
        else:
            progress = _read_run(store, spec) if spec.folder in present else RunProgress(spec, "waiting")
        if failed and progress.state == "waiting":
            progress = RunProgress(spec, "failed", progress.step, message=f"not started, because {failed[0]} failed")
        found[spec.folder] = progress
    return list(found.values())


def _read_run(store: Store, spec: RunSpec) -> RunProgress:
    if store.read_object(f"{spec.folder}/result.json") is not None:
        return RunProgress(spec, "done", spec.steps)
    status = store.read_object(f"{spec.folder}/status.json") or {}
    step, state = integer(status.get("step")), status.get("state")
    if state == "running" and not is_dead(status):
        return RunProgress(spec, "running", step, _read_rate(store, spec))
    if state == "failed":
        return RunProgress(spec, "failed", step, message=plain(status.get("message", "")))
    return RunProgress(spec, "waiting", step)


def _read_rate(store: Store, spec: RunSpec) -> float:
    lines = (store.read(f"{spec.folder}/timing.jsonl", last=_LINE_BYTES) or b"").splitlines()
    for line in reversed(lines):
        try:
            content: Any = json.loads(line)
        except ValueError:  # incomplete
            continue
        rate = number(content.get("time/steps_per_second")) if isinstance(content, dict) else math.nan
        return rate if math.isfinite(rate) else 0.0
    return 0.0


def group(progress: Iterable[RunProgress]) -> list[GroupProgress]:
    """Add up the runs per method and domain, sorted by name."""
    found: dict[tuple[str, str], GroupProgress] = {}
    for run in progress:
        key = run.spec.method, run.spec.domain
        found.setdefault(key, GroupProgress(*key)).add(run)
    return [found[key] for key in sorted(found)]


def total(groups: Sequence[GroupProgress]) -> GroupProgress:
    whole = GroupProgress("all", "")
    for one in groups:
        for name in ("waiting", "running", "done", "failed", "rate", "steps_left"):
            setattr(whole, name, getattr(whole, name) + getattr(one, name))
    return whole
