"""How one may look at an agent: the settings of `cic skills` and `cic film`. Light, because `--help` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cic.core.errors import UserError

MOST = 500
"""Skills in one picture."""
TILES = 25
"""Of them in a film."""
LONGEST = 3600.0
"""Seconds of a film."""


@dataclass(frozen=True)
class Look:
    """How skills are shown."""

    count: int = 9
    """How many skills are shown; of one-hot skills all are."""
    choose: Literal["auto", "grid", "random"] = "auto"
    """grid: skills that have a name (values, directions); random: drawn as in pre-training; auto: a grid, or the policy
    of a run that has no skills or has chosen one."""
    skill: tuple[float, ...] | None = None
    """Show this skill alone: a number per dimension, one number for all of them, or the place of a one-hot skill."""
    starts: int = 3
    """Initial states. Skills are drawn from the first of them, and a few of them from all."""
    seed: int = 0
    """Of the initial states and the random skills."""
    compare: int = 24
    """Random skills to try as well, to find each task's best and to say how much a skill matters; 0 for none."""
    seconds: float = 8.0
    """Length of films and filmstrips, in the simulated world."""
    columns: int | None = None
    """Columns of the film; as square as it can be by default."""
    film: Literal["mp4", "webp", "gif"] = "mp4"
    """What films are written as; WebP and GIF play in a README."""
    video: bool = True
    """Also make filmstrips and films, where OpenGL is there."""

    def __post_init__(self) -> None:
        for name, least, most in (("count", 1, MOST), ("starts", 1, 50), ("compare", 0, MOST), ("columns", 1, TILES)):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UserError(f"{name} must be at least {least} and at most {most}, not {value:,}")
        check_seconds(self.seconds)


@dataclass(frozen=True)
class Shot:
    """How one episode is filmed."""

    task: str | None = None
    """Of a pre-training: the task whose return is shown; by default every task of its domain."""
    skill: tuple[float, ...] | None = None
    """Act by this skill: a number per dimension, one number for all of them, or the place of a one-hot skill. By
    default the run's own; of a pre-training, one drawn at random."""
    seconds: float | None = None
    """Length of the film in the simulated world; by default a whole episode."""
    width: int = 480
    """Of the film, in pixels."""
    height: int = 360
    """Of the picture in it, in pixels."""
    seed: int = 0
    """Of the initial state and the random skill."""

    def __post_init__(self) -> None:
        if not (64 <= self.width <= 1920 and 64 <= self.height <= 1920):
            raise UserError(f"width and height must be between 64 and 1,920 pixels, not {self.width} and {self.height}")
        if self.seconds is not None:
            check_seconds(self.seconds)


def check_seconds(seconds: float) -> None:
    if not 0 < seconds <= LONGEST:
        raise UserError(f"seconds must be above 0 and at most {LONGEST:,.0f}, not {seconds:g}")
