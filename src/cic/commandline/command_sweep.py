"""`cic sweep`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cic.commandline.flags import POSITIONAL
from cic.sweep.command import SweepOptions, sweep


@dataclass(frozen=True)
class SweepArguments:
    options: SweepOptions
    file: Path | None = field(default=None, metadata=POSITIONAL)
    """A plan in JSON. Without it, --objectives and --domains make the plan."""


def run(given: SweepArguments) -> int:
    return sweep(given.file, given.options)
