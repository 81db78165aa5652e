"""`cic report`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from cic.commandline.flags import POSITIONAL, flags_of
from cic.commandline.parser import with_quoted_flags
from cic.report.options import ReportOptions


@dataclass(frozen=True)
class ReportArguments:
    options: ReportOptions
    runs: tuple[Path, ...] = field(metadata=POSITIONAL)
    """Run folders, or folders of run folders."""
    out: Path = Path("report")
    """Folder for report.html, figures and tables."""


def run(given: ReportArguments) -> None:
    from cic.report import report

    result = report(given.runs, given.out, given.options)
    for finding in result.findings:
        print(finding)
    for notice in result.notices:
        print(f"cic: note: {with_quoted_flags(notice, flags_of(ReportOptions))}", file=sys.stderr)
    print(f"{result.page}: {result.runs} runs, {len(result.figures)} figures, {len(result.tables)} tables", flush=True)
