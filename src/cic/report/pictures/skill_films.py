"""Filmstrips and films of several skills side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cic import envs
from cic.core.types import Array
from cic.learning.agent import Agent
from cic.report.pictures import frames, recording
from cic.report.pictures.options import SkillsOptions
from cic.training.progress import Stages

MAX_STRIPS = 12
"""Maximum number of rows of a filmstrip."""
TILE = (200, 150)
"""Width and height of a frame."""


@dataclass(frozen=True)
class SkillFilm:
    """What a film shows."""

    skills: Array
    seeds: Sequence[int]
    titles: Sequence[str]
    tints: Sequence[Sequence[float]]
    heading: str
    task: str | None
    """The task whose running return is shown."""


@dataclass(frozen=True)
class FilmWriter:
    agent: Agent
    environment: str
    options: SkillsOptions
    folder: Path
    stages: Stages

    def write(self, name: str, film: SkillFilm) -> list[Path]:
        """Play the skills, and write a filmstrip and a film."""
        options, count = self.options, len(film.skills)
        film_file = self.folder / f"{name}.{options.film}"
        strip_file = self.folder / ("filmstrip.png" if name == "skills" else f"{name}.png")
        recording.check_format(film_file)
        env = envs.make(self.environment, num_envs=count, seed=options.seed, pictures=True)
        try:
            steps = recording.seconds_to_steps(env, options.seconds)
            strip_columns = recording.strip_steps(env, steps, 8)
            film_steps, rate = recording.frame_steps(env, steps)
            needed = {*film_steps, *(step for column in strip_columns for step in column)}
            with self.stages(f"playing {name}", steps) as tick:
                played = recording.record(self.agent, env, film.skills, film.seeds, TILE, needed, tick)
            rows = evenly(count, MAX_STRIPS)
            with self.stages(f"filmstrip of {name}", len(rows) * len(strip_columns)) as tick:
                strip = recording.filmstrip(played, strip_columns, rows, film.titles, film.tints, film.heading, tick)
                frames.save(strip, strip_file)
            with self.stages(f"film of {name}", len(film_steps) * count) as tick:
                columns = min(options.columns or int(np.ceil(np.sqrt(count))), count)
                shots = recording.grid_film(played, film_steps, film.titles, film.tints, columns, film.task, tick)
                recording.write_film(shots, rate, film_file)
        finally:
            env.close()
        return [strip_file, film_file]


def evenly(count: int, most: int) -> list[int]:
    """Return at most `most` indices, evenly from 0 to `count` - 1."""
    return sorted({int(i) for i in np.linspace(0, count - 1, min(count, most)).round()})
