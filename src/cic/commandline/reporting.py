"""`cic report` and `cic compare`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from cic.commandline.arguments import arguments
from cic.report.options import CompareOptions, ReportOptions, ReportResult


@dataclass(frozen=True)
class ReportArgs:
    runs: tuple[Path, ...]
    """Run folders, or folders of run folders."""
    options: ReportOptions
    out: Path = Path("report")
    """Folder for report.html, figures and tables."""


def report(args: list[str]) -> None:
    given = arguments(ReportArgs, args, "report", positional=["runs"])
    if given is None:
        return
    from cic.report import report, watch

    if given.options.watch:
        watch(given.runs, given.out, given.options, _say)
    else:
        _say(report(given.runs, given.out, given.options))


def _say(result: ReportResult) -> None:
    for finding in result.findings:
        print(finding)
    for notice in result.notices:
        print(f"cic: note: {notice}", file=sys.stderr)
    print(f"{result.page}: {result.runs} runs, {len(result.figures)} figures, {len(result.tables)} tables", flush=True)


@dataclass(frozen=True)
class CompareArgs:
    a: Path
    """The first group: a run folder or a folder of run folders."""
    b: Path
    """The second group."""
    options: CompareOptions


def compare(args: list[str]) -> None:
    given = arguments(CompareArgs, args, "compare", positional=["a", "b"])
    if given is None:
        return
    from rich.console import Console

    from cic.report import compare

    Console().print(compare([given.a], [given.b], given.options))
