"""The drawings, filmstrips and films of episodes, as files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cic import envs
from cic.core.errors import UserError
from cic.core.types import Array
from cic.report.pictures import drawing, filming
from cic.report.pictures.look import TILES
from cic.report.pictures.watched import Best, Watched
from cic.training.progress import Stages

ROWS = 12
"""Of a filmstrip."""
TILE = (200, 150)


def drawings(found: Watched, folder: Path, notes: Sequence[str]) -> list[Path]:
    panels = found.panels(found.firsts)
    same = "" if found.shown.noun == "start" else ", all from the same initial state"
    what = "" if found.shown.noun == "start" else "Skills are behaviours that were learned without any reward. "
    each = f"Each line is {found.shown.each}, over a whole episode{same}. {drawing.marks(panels)}"
    said = [what + each, notes[0]]
    if not found.env.drawing:
        said.append("Both axes are sums of entries of the observation, each counted in standard deviations.")
    files = [drawing.draw(panels, found.shown, found.heading, said, folder / "skills.png")]
    if found.starts > 1:
        chosen = _evenly(len(found.shown.names), 6)
        tints = drawing.colours(found.shown.order, len(found.shown.names))
        every = [range(first, first + found.starts) for first in (found.firsts[i] for i in chosen)]
        flat = found.panels([episode for group in every for episode in group])[0]
        groups = [flat.lines[i : i + found.starts] for i in range(0, len(flat.lines), found.starts)]
        parts = [drawing.Panel(flat.x, flat.y, lines, flat.plane, "", flat.limits) for lines in groups]
        titles = [found.shown.title(i) for i in chosen]
        heading = f"{found.env.name}: the same skill from {found.starts} starts ({found.method})"
        files.append(drawing.draw_starts(parts, titles, [tints[i] for i in chosen], heading, folder / "starts.png"))
    return files


def _evenly(count: int, most: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(0, count - 1, min(count, most)).round()})


def films(found: Watched, best: Sequence[Best], folder: Path, stages: Stages) -> list[Path]:
    """Filmstrips and films; a warning in their place where nothing can be rendered."""
    chosen = _evenly(len(found.shown.names), TILES)
    tints = drawing.colours(found.shown.order, len(found.shown.names))
    titles = [found.shown.title(i) for i in chosen]
    seeds = [(found.shown.seeds or [found.asked.seed] * len(found.shown.names))[i] for i in chosen]
    task = "reward" if found.env.task or not found.env.tasks else None  # what the environment itself pays
    files: list[Path] = []
    try:
        reel = Reel(found, stages, folder)
        tinted = [tints[i] for i in chosen]
        files += reel.shoot("skills", found.shown.skills[chosen], seeds, titles, tinted, found.heading, task)
        if best and len(found.shown.names) > 1:
            files += _best(reel, best)
    except UserError as error:
        warnings.warn(f"no films or filmstrips: {error}", stacklevel=2)
    return files


def _best(reel: Reel, best: Sequence[Best]) -> list[Path]:
    """Each task's best skill; one that is the best of several is shown once."""
    by_skill: dict[bytes, list[Best]] = {}
    for one in best:
        by_skill.setdefault(one.skill.tobytes(), []).append(one)
    groups = list(by_skill.values())
    titles = [f"{', '.join(f'{one.task} {one.score:.0f}' for one in same)}: {same[0].name}" for same in groups]
    found = reel.found
    heading = (
        f"{found.env.name}: the best skill of each task and its return without finetuning, the mean of "
        f"{found.asked.starts} starts ({found.method})"
    )
    skills = np.stack([same[0].skill for same in groups])
    tints = drawing.colours("apart", len(skills))
    return reel.shoot("best", skills, [found.asked.seed] * len(skills), titles, tints, heading, None)


@dataclass(frozen=True)
class Reel:
    """Makes a filmstrip and a film of some skills."""

    found: Watched
    stages: Stages
    folder: Path

    def shoot(
        self,
        name: str,
        skills: Array,
        seeds: Sequence[int],
        titles: Sequence[str],
        tints: Sequence[Sequence[float]],
        heading: str,
        task: str | None,
    ) -> list[Path]:
        film = self.folder / f"{name}.{self.found.asked.film}"
        strip = self.folder / ("filmstrip.png" if name == "skills" else f"{name}.png")
        filming.check_ending(film)
        asked, own = self.found.asked, self.found.env.name
        env = envs.make(own, num_envs=len(skills), seed=asked.seed, pictures=True)
        try:
            steps = filming.seconds_to_steps(env, asked.seconds)
            moments = filming.strip_steps(env, steps, 8)
            frames, rate = filming.frame_steps(env, steps)
            wanted = {*frames, *(step for moment in moments for step in moment)}
            with self.stages(f"playing {name}", steps) as tick:
                take = filming.play(self.found.agent, env, skills, seeds, TILE, wanted, tick)
            rows = _evenly(len(skills), ROWS)
            with self.stages(f"filmstrip of {name}", len(rows) * len(moments)) as tick:
                picture = filming.filmstrip(take, moments, rows, titles, tints, heading, tick)
                filming.write_picture(picture, strip)
            with self.stages(f"film of {name}", len(frames) * len(skills)) as tick:
                columns = asked.columns or int(np.ceil(np.sqrt(len(skills))))
                shots = filming.grid_film(take, frames, titles, tints, min(columns, len(skills)), task, tick)
                filming.write_film(shots, rate, film)
        finally:
            env.close()
        return [strip, film]
