"""Options and result of `report` and `compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cic.report.statistics import Bootstrap


@dataclass(frozen=True)
class ReportOptions(Bootstrap):
    """Options of a report."""

    paper: tuple[str, ...] = ()
    """Rows of the paper to show next to your runs: method names, "all", and "variants" for its table of rewards."""
    mix: bool = False
    """Average runs with different scales, budgets or settings instead of giving each its own row."""
    reference: str = "cic"
    """The method whose probability of improvement over each other method is shown."""
    figures: tuple[Literal["png", "pdf"], ...] = ("png", "pdf")
    """File formats of each figure, in addition to the page."""
    data: Path | None = None
    """Also write the runs as tables (runs.csv, curves.csv.gz) to this folder: commit these instead of run folders."""


@dataclass(frozen=True)
class CompareOptions(Bootstrap):
    """Options of a comparison of two groups of runs."""

    mix: bool = False
    """Accept runs with several methods, scales, budgets or settings as one group."""
    reps: int = 5000
    """Resamples per interval."""


@dataclass(frozen=True)
class ReportResult:
    """The files of a report and its messages."""

    page: Path
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]
    findings: tuple[str, ...]
    """The main results, one sentence each; the first part of the page."""
    notices: tuple[str, ...]
    """Excluded runs and other warnings; the page shows them too."""
    runs: int
