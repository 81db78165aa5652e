"""Options of `cic reproduce`. The module imports little because the command's help is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cic.experiments.experiment import ExperimentSetup


@dataclass(frozen=True)
class ReproduceOptions:
    """How experiments are run."""

    scale: Literal["smoke", "laptop", "paper"] = "laptop"
    """The set of default settings: smoke (seconds, a test), laptop (hours on one core) or paper (the paper's)."""
    out: Path = Path("reproduction")
    """Folder for runs, figures and pages; one scale each."""
    draw: bool = False
    """Run nothing: draw the contents of `out` again, from its run folders or its tables."""
    seeds: str | None = None
    """Seeds, such as 0-4 or 0,3,7; by default those of the experiment."""
    domain: str | None = None
    """Another domain than the paper's, or several (walker,quadruped), where the experiment allows it."""
    set: tuple[str, ...] = ()
    """NAME=VALUE of its pre-trainings, finetune.NAME=VALUE of its finetunings."""
    slots: int | None = None
    """Runs at once; by default as many as there are cores."""
    address: str | None = None
    """Join the Ray cluster at HOST:PORT (or auto); `out` must be a folder that all nodes see."""
    quiet: bool = False
    """Show no progress."""

    def setup(self) -> ExperimentSetup:
        from cic.experiments.experiment import ExperimentSetup
        from cic.sweep.grid import parse_seeds

        return ExperimentSetup(self.scale, parse_seeds(self.seeds) if self.seeds else (), self.domain, self.set)
