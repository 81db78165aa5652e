"""Progress of a sweep, read from its files: any machine that sees the store can show it."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from cic.runs.liveness import is_dead
from cic.runs.untrusted import integer, number, plain
from cic.sweep.specs import RunSpec, read_specs
from cic.sweep.store import Store

STATES = ("waiting", "running", "done", "failed")
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


# ---- on the terminal -------------------------------------------------------------------------------------------


def progress_table(runs: Sequence[RunProgress]) -> Table:
    """Return a table with a row per method and domain, and their sum."""
    groups: dict[tuple[str, str], list[RunProgress]] = defaultdict(list)
    for run in runs:
        groups[run.spec.method, run.spec.domain].append(run)
    table = Table("method", "domain", box=None, header_style="bold", pad_edge=False)
    for name in (*STATES, "steps/s", "left"):
        table.add_column(name, justify="right")
    for key in sorted(groups):
        table.add_row(*map(escape, key), *_cells(groups[key]))
    if len(groups) > 1:
        table.add_section()
        table.add_row("all", "", *_cells(runs), style="bold")
    return table


def _cells(runs: Sequence[RunProgress]) -> list[str]:
    counts = Counter(run.state for run in runs)
    rate = sum(run.rate for run in runs)
    return [*(str(counts[state] or "-") for state in STATES), f"{rate:,.0f}" if rate else "-", time_left(runs)]


def time_left(runs: Sequence[RunProgress]) -> str:
    """Return the time for the remaining steps at the present speed; "?" while no speed is known."""
    steps = sum(max(0, run.spec.steps - run.step) for run in runs if run.state in ("waiting", "running"))
    rate = sum(run.rate for run in runs)
    return duration(steps / rate if rate else math.nan if steps else 0.0)


def progress_line(runs: Sequence[RunProgress]) -> str:
    counts = Counter(run.state for run in runs)
    return (
        f"{counts['done']} of {len(runs)} runs done, {counts['running']} running, {counts['failed']} failed, "
        f"{sum(run.rate for run in runs):,.0f} steps/s, {time_left(runs)} left"
    )


def duration(seconds: float) -> str:
    """Format a time: 45 s, 12 min, 3.5 h, 9 days."""
    if not math.isfinite(seconds):
        return "?"
    for least, unit, size in ((86400.0 * 2, "days", 86400.0), (5400.0, "h", 3600.0), (90.0, "min", 60.0)):
        if seconds >= least:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 and unit != "min" else f"{value:,.0f} {unit}"
    return f"{seconds:.0f} s"


@contextlib.contextmanager
def show_progress(read: Callable[[], Sequence[RunProgress]], quiet: bool = False) -> Iterator[Callable[[], None]]:
    """Show a live table, or a line per finished run. Yields a function to call after each run.

    The output of runs is redirected to their logs, so the progress is written to the stderr of now.
    """
    stream = sys.stderr
    console = Console(file=stream)

    def table() -> Table:
        with contextlib.suppress(Exception):  # the store fails for a moment
            return progress_table(read())
        return Table()

    def print_line() -> None:
        with contextlib.suppress(Exception):
            print(f"cic: {progress_line(read())}", file=stream, flush=True)

    if quiet:
        yield lambda: None
    elif console.is_terminal:
        with Live(
            console=console, get_renderable=table, refresh_per_second=0.5, redirect_stdout=False, redirect_stderr=False
        ):
            yield lambda: None
    else:
        yield print_line
