"""The filmstrip and the film of several skills side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cic import envs
from cic.report.pictures import recording
from cic.report.pictures.options import MAX_TILES
from cic.report.pictures.skill_episodes import SkillEpisodes
from cic.training.progress import Stages

MAX_STRIPS = 12
"""Maximum number of rows of a filmstrip."""
TILE = (200, 150)
"""Width and height of a frame."""


def write_films(found: SkillEpisodes, seeds: Sequence[int], folder: Path, stages: Stages) -> list[Path]:
    """Play the skills, and write filmstrip.png and the film."""
    options, shown = found.asked, found.shown
    chosen = evenly(len(shown.names), MAX_TILES)
    titles, tints = [shown.title(i) for i in chosen], [found.colours[i] for i in chosen]
    film, strip = folder / f"skills.{options.film}", folder / "filmstrip.png"
    recording.check_format(film)
    env = envs.make(found.env.name, num_envs=len(chosen), seed=options.seed, pictures=True)
    try:
        steps = recording.seconds_to_steps(env, options.seconds)
        columns = recording.strip_steps(env, steps, 8)
        film_steps, rate = recording.frame_steps(env, steps)
        needed = {*film_steps, *(step for column in columns for step in column)}
        with stages("playing", steps) as tick:
            start = [seeds[i] for i in chosen]
            played = recording.record(found.agent, env, shown.skills[chosen], start, TILE, needed, tick)
        rows = evenly(len(chosen), MAX_STRIPS)
        with stages("filmstrip", len(rows) * len(columns)) as tick:
            recording.write_filmstrip(
                played, columns, {titles[i]: (i, tints[i]) for i in rows}, found.heading, strip, tick
            )
        with stages("film", len(film_steps) * len(chosen)) as tick:
            width = min(options.columns or int(np.ceil(np.sqrt(len(chosen)))), len(chosen))
            task = "reward" if found.env.task or not found.env.tasks else None
            recording.write_film(recording.grid_film(played, film_steps, titles, tints, width, task, tick), rate, film)
    finally:
        env.close()
    return [strip, film]


def evenly(count: int, most: int) -> list[int]:
    """Return at most `most` indices, evenly from 0 to `count` - 1."""
    return sorted({int(i) for i in np.linspace(0, count - 1, min(count, most)).round()})
