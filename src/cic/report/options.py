"""What one may ask of a report, and what one gets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cic.core.errors import UserError
from cic.report.statistics import Bootstrap


@dataclass(frozen=True)
class ReportOptions:
    """How a report is made."""

    paper: tuple[str, ...] = ()
    """The paper's rows to show beside your runs: method names, "all", and "variants" for its table of rewards."""
    tasks: Literal["common", "each"] = "common"
    """Aggregate over the tasks that every method has (common), or over each method's own tasks (each)."""
    mix: bool = False
    """Average runs of different scales, budgets or settings instead of giving each its own row."""
    budgets: Literal["apart", "together"] = "apart"
    """Keep finetuning runs of another budget than most in a section of their own, or put all in one table."""
    split: tuple[str, ...] = ()
    """More config keys (such as selection.search) whose values get rows of their own."""
    reference: str = "cic"
    """The method whose probability of improvement over each other one is shown."""
    reps: int = 2000
    """Bootstrap resamples per interval."""
    confidence: float = 0.95
    """Coverage of the intervals."""
    seed: int = 0
    """Seed of the resampling."""
    figures: tuple[Literal["png", "pdf"], ...] = ("png", "pdf")
    """Files to write of each figure, beside the one in the page."""
    media: float = 20.0
    """Megabytes of pictures and films to embed in the page at most."""
    watch: bool = False
    """Make the report again whenever a run has moved on, until no run is going on."""
    interval: float = 30.0
    """Seconds between two looks when watching; the open page reloads itself as often."""

    def __post_init__(self) -> None:
        if self.interval <= 0:
            raise UserError(f"interval must be above 0 seconds, not {self.interval}")
        if self.media < 0:
            raise UserError(f"media must be at least 0 megabytes, not {self.media}")
        self.bootstrap  # noqa: B018 its own checks

    @property
    def bootstrap(self) -> Bootstrap:
        return Bootstrap(reps=self.reps, confidence=self.confidence, seed=self.seed)


@dataclass(frozen=True)
class CompareOptions:
    """How two groups of runs are compared."""

    mix: bool = False
    """Take runs of several methods, scales, budgets or settings as one group."""
    reps: int = 5000
    """Bootstrap resamples per interval."""
    confidence: float = 0.95
    """Coverage of the intervals."""
    seed: int = 0
    """Seed of the resampling."""

    def __post_init__(self) -> None:
        self.bootstrap  # noqa: B018 its own checks

    @property
    def bootstrap(self) -> Bootstrap:
        return Bootstrap(reps=self.reps, confidence=self.confidence, seed=self.seed)


@dataclass(frozen=True)
class ReportResult:
    """Where the report is and what it said."""

    page: Path
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]
    findings: tuple[str, ...]
    """What the runs say, in a few sentences; the page opens with them."""
    notices: tuple[str, ...]
    """What was left out or needs a second look, one sentence each; the page shows them too."""
    runs: int
    running: int
