"""`cic report --watch`: make the report again whenever a run has moved on, while runs are going on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cic.core.errors import UserError
from cic.report.build import report
from cic.report.options import ReportOptions, ReportResult
from cic.runs import records

_FILES = ("config.json", "status.json", "metrics.jsonl", "result.json", "trials.json")
State = dict[Path, tuple[int, int, bool]]


def watch(
    runs: Sequence[Path],
    out: Path,
    options: ReportOptions,
    made: Callable[[ReportResult], None] = lambda result: None,
    sleep: Callable[[float], None] = time.sleep,
) -> ReportResult:
    """Report until no run is going on; `made` hears of each report. Folders without any run yet are waited for."""
    options = replace(options, watch=True)  # the page reloads itself
    before: State | None = None
    result: ReportResult | None = None
    while True:
        now = _state(runs)
        if now != before:
            before = now
            result = _report(runs, out, options, made)
        if result is not None and not result.running:
            return result
        sleep(options.interval)


def _report(
    runs: Sequence[Path], out: Path, options: ReportOptions, made: Callable[[ReportResult], None]
) -> ReportResult | None:
    if not _state(runs) and not options.paper:
        return None
    result = report(runs, out, options)
    made(result)
    return result


def _state(runs: Sequence[Path]) -> State:
    """Size and time of every file that a report reads, and whether its run is going on: that may end by mere time."""
    found: State = {}
    for root in runs:
        if not Path(root).exists():
            raise UserError(f"{root} does not exist; give a run folder or a folder of run folders")
        for folder in records.folders(Path(root)):
            run = records.read_run(folder)
            going_on = isinstance(run, records.RunRecord) and run.going_on
            for name in _FILES:
                try:
                    stat = (folder / name).stat()
                except OSError:  # not written yet, or being replaced
                    continue
                found[folder / name] = (stat.st_size, stat.st_mtime_ns, going_on)
    return found
