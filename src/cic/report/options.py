"""Options and result of `report` and `compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cic.core.errors import UserError
from cic.report.statistics import Bootstrap


@dataclass(frozen=True)
class ReportOptions:
    """Options of a report."""

    paper: tuple[str, ...] = ()
    """Rows of the paper to show next to your runs: method names, "all", and "variants" for its table of rewards."""
    tasks: Literal["common", "each"] = "common"
    """Aggregate over the tasks that every method has (common), or over each method's own tasks (each)."""
    mix: bool = False
    """Average runs with different scales, budgets or settings instead of giving each its own row."""
    budgets: Literal["apart", "together"] = "apart"
    """Show finetuning runs with a different budget than most in a separate section, or all in one table."""
    split: tuple[str, ...] = ()
    """More config keys (such as selection.search) whose values get separate rows."""
    reference: str = "cic"
    """The method whose probability of improvement over each other method is shown."""
    reps: int = 2000
    """Bootstrap resamples per interval."""
    confidence: float = 0.95
    """Coverage of the intervals."""
    seed: int = 0
    """Seed of the resampling."""
    figures: tuple[Literal["png", "pdf"], ...] = ("png", "pdf")
    """File formats of each figure, in addition to the page."""
    media: float = 20.0
    """Maximum size of the pictures and films in the page, in megabytes."""
    data: Path | None = None
    """Also write the runs as tables (runs.csv, curves.csv.gz) to this folder: commit these instead of run folders."""
    watch: bool = False
    """Update the report whenever a run has made progress, until no run is in progress."""
    interval: float = 30.0
    """Seconds between two checks with `watch`; an open page reloads itself as often."""

    def __post_init__(self) -> None:
        if self.interval <= 0:
            raise UserError(f"interval must be above 0 seconds, not {self.interval}")
        if self.media < 0:
            raise UserError(f"media must be at least 0 megabytes, not {self.media}")
        self.bootstrap  # noqa: B018 validates reps and confidence

    @property
    def bootstrap(self) -> Bootstrap:
        return Bootstrap(reps=self.reps, confidence=self.confidence, seed=self.seed)


@dataclass(frozen=True)
class CompareOptions:
    """Options of a comparison of two groups of runs."""

    mix: bool = False
    """Accept runs with several methods, scales, budgets or settings as one group."""
    reps: int = 5000
    """Bootstrap resamples per interval."""
    confidence: float = 0.95
    """Coverage of the intervals."""
    seed: int = 0
    """Seed of the resampling."""

    def __post_init__(self) -> None:
        self.bootstrap  # noqa: B018 validates reps and confidence

    @property
    def bootstrap(self) -> Bootstrap:
        return Bootstrap(reps=self.reps, confidence=self.confidence, seed=self.seed)


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
    running: int
