"""`cic film`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cic.commandline.shared import AgentArguments
from cic.report.pictures.options import FilmOptions
from cic.training.progress import Stages


@dataclass(frozen=True)
class FilmArguments(AgentArguments):
    shot: FilmOptions = field(default_factory=FilmOptions)
    out: Path | None = None
    """The file: .mp4, .gif or .webp; by default pictures/film.mp4 in the run's folder."""
    quiet: bool = False
    """Show no progress."""


def run(given: FilmArguments) -> None:
    stages = Stages("cic film", given.quiet)
    with stages("starting"):
        from cic.report.film import film

    found = film(given.run, at=given.at, out=given.out, trust=given.trust, stages=stages, **vars(given.shot))
    returns = ", ".join(f"{task} {value:.1f}".removeprefix("reward ") for task, value in found.returns.items())
    print(f"{found.file}: {found.steps:,} steps, return {returns}")
