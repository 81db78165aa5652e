"""`cic skills` and `cic film`: what an agent does, in pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cic.commandline import text_tables
from cic.commandline.arguments import arguments
from cic.report.pictures.look import Look, Shot
from cic.training.progress import Stages


@dataclass(frozen=True)
class SkillsArgs:
    run: Path
    """Folder of a pre-training or a finetuning."""
    look: Look
    at: int | None = None
    """Use the weights of this step's milestone or checkpoint."""
    out: Path | None = None
    """Folder for the table, the pictures and the films; by default the run's pictures/."""
    trust: bool = False
    """Make the run's environment even if that imports a module that its config.json names."""
    quiet: bool = False
    """Show no progress."""


def skills(args: list[str]) -> None:
    given = arguments(SkillsArgs, args, "skills", positional=["run"])
    if given is None:
        return
    stages = Stages("cic skills", given.quiet)
    with stages("starting"):
        from cic.report.skills import comparison_table, describe

    found = describe(given.run, at=given.at, out=given.out, trust=given.trust, stages=stages, **vars(given.look))
    text_tables.show(found.header, [[_cell(cell) for cell in row] for row in found.rows])
    for note in found.notes:
        print(note)
    if found.diagnosis is not None:
        print()
        text_tables.show(*comparison_table(found.diagnosis))
        print(found.diagnosis.sentence)
    print()
    for path in found.files:
        print(path)


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class FilmArgs:
    run: Path
    """Folder of a pre-training or a finetuning."""
    shot: Shot
    at: int | None = None
    """Use the weights of this step's milestone or checkpoint."""
    out: Path | None = None
    """The file, .mp4, .gif or .webp; by default film.mp4 in the run's pictures/."""
    trust: bool = False
    """Make the run's environment even if that imports a module that its config.json names."""
    quiet: bool = False
    """Show no progress."""


def film(args: list[str]) -> None:
    given = arguments(FilmArgs, args, "film", positional=["run"])
    if given is None:
        return
    stages = Stages("cic film", given.quiet)
    with stages("starting"):
        from cic.report.film import film

    found = film(given.run, at=given.at, out=given.out, trust=given.trust, stages=stages, **vars(given.shot))
    paid = ", ".join(f"{task} {value:.1f}".removeprefix("reward ") for task, value in found.returns.items())
    print(f"{found.file}: {found.steps:,} steps, return {paid}")
