"""`cic compare`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cic.commandline.flags import POSITIONAL
from cic.report.options import CompareOptions


@dataclass(frozen=True)
class CompareArguments:
    options: CompareOptions
    a: Path = field(metadata=POSITIONAL)
    """The first group: a run folder or a folder of run folders."""
    b: Path = field(metadata=POSITIONAL)
    """The second group."""


def run(given: CompareArguments) -> None:
    from rich.console import Console

    from cic.report import compare

    Console().print(compare(given.a, given.b, given.options))
