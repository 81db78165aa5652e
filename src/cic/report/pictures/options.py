"""Options of `cic skills` and `cic film`. Imports nothing heavy, because the command line's help reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cic.core.errors import UserError

MAX_SKILLS = 500
MAX_TILES = 25
"""Maximum number of skills in a film."""
MAX_SECONDS = 3600.0


@dataclass(frozen=True)
class SkillsOptions:
    """Options of `cic skills`."""

    count: int = 9
    """Number of skills to show; of one-hot skills, all are shown."""
    choose: Literal["auto", "grid", "random", "different"] = "auto"
    """grid: skills with a name (values, directions); random: sampled as in pre-training; different: those random skills
    that behave most differently; auto: grid, or the policy of a run that has no skills or has selected one."""
    skill: tuple[float, ...] | None = None
    """Show only this skill: one number per dimension, one for all dimensions, or the index of a one-hot skill."""
    starts: int = 3
    """Number of initial states of the additional random skills, and of a policy without skills."""
    seed: int = 0
    """Seed of the initial states and the random skills."""
    compare: int = 24
    """Number of additional random skills, used to measure how much the skill matters; 0 for none."""
    seconds: float = 8.0
    """Length of films and filmstrips in simulated time."""
    columns: int | None = None
    """Columns of the film; by default as square as possible."""
    film: Literal["mp4", "webp", "gif"] = "mp4"
    """File format of films; WebP and GIF play in a README."""
    video: bool = True
    """Also write filmstrips and films, if OpenGL is available."""

    def __post_init__(self) -> None:
        limits = {"count": (1, MAX_SKILLS), "starts": (1, 50), "compare": (0, MAX_SKILLS), "columns": (1, MAX_TILES)}
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise UserError(f"{name} must be at least {low} and at most {high}, not {value:,}")
        check_seconds(self.seconds)


@dataclass(frozen=True)
class FilmOptions:
    """Options of `cic film`."""

    task: str | None = None
    """For a pre-trained agent: the task whose return is shown; by default every task of its domain."""
    skill: tuple[float, ...] | None = None
    """Use this skill: one number per dimension, one for all dimensions, or the index of a one-hot skill. By
    default the run's own skill; for a pre-trained agent, a random one."""
    seconds: float | None = None
    """Length of the film in simulated time; by default a whole episode."""
    width: int = 480
    """Width of the film in pixels."""
    height: int = 360
    """Height of the picture in the film in pixels."""
    seed: int = 0
    """Seed of the initial state and the random skill."""

    def __post_init__(self) -> None:
        if not (64 <= self.width <= 1920 and 64 <= self.height <= 1920):
            raise UserError(f"width and height must be between 64 and 1,920 pixels, not {self.width} and {self.height}")
        if self.seconds is not None:
            check_seconds(self.seconds)


def check_seconds(seconds: float) -> None:
    if not 0 < seconds <= MAX_SECONDS:
        raise UserError(f"seconds must be above 0 and at most {MAX_SECONDS:,.0f}, not {seconds:g}")
