"""`cic skills`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cic.commandline.shared import AgentArguments
from cic.commandline.text_tables import print_table
from cic.report.pictures.options import SkillsOptions
from cic.training.progress import Stages


@dataclass(frozen=True)
class SkillsArguments(AgentArguments):
    look: SkillsOptions = field(default_factory=SkillsOptions)
    out: Path | None = None
    """Folder for the table, the figures and the films; by default pictures/ in the run's folder."""
    quiet: bool = False
    """Show no progress."""


def run(given: SkillsArguments) -> None:
    stages = Stages("cic skills", given.quiet)
    with stages("starting"):
        from cic.report.skills import comparison_table, skills

    found = skills(given.run, at=given.at, out=given.out, trust=given.trust, stages=stages, **vars(given.look))
    print_table(found.header, [[_cell(cell) for cell in row] for row in found.rows])
    for note in found.notes:
        print(note)
    if found.diagnosis is not None:
        print()
        print_table(*comparison_table(found.diagnosis))
        print(found.diagnosis.sentence)
    print()
    for path in found.files:
        print(path)


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
