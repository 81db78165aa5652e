"""Figure "static poses": how much DIAYN's and CIC's skills still move after the first second."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cic.api import load
from cic.core.errors import UserError
from cic.core.paper_scores import TITLES
from cic.experiments.experiment import Experiment, ExperimentResult, ExperimentSetup, PlannedRun, by_scale
from cic.experiments.experiment_runs import ExperimentRun, ExperimentRuns
from cic.experiments.measurements import FOLDER, read_picture, save_picture
from cic.experiments.panels import dots_panel, mean_text, picture_panel
from cic.experiments.rollouts import FRAMES, play, render, side_by_side, skills_of
from cic.report.figures import Panel, Plot
from cic.report.tables import Table, words
from cic.runs.folder import Run

MOTIONS = {"pose": "Change of pose (rad/s)", "speed": "Way of the body (m/s)"}
SKILLS, SECONDS, STRIPS = by_scale(4, 16, 16), by_scale(2.0, 10.0, 10.0), by_scale(1, 3, 3)


class Body(NamedTuple):
    """The meaning of a domain's positions."""

    ground: tuple[int, ...]
    """Indices of the body's place along the ground."""
    positions: int
    seconds: float
    """Of a step."""


BODIES = {
    "walker": Body((1,), 9, 0.025),
    "quadruped": Body((0, 1), 23, 0.02),
    "hopper": Body((0,), 7, 0.02),
    "point_mass": Body((0, 1), 2, 0.02),
    "gridworld": Body((0, 1), 2, 0.04),
}


def measure_motion(run: Path, scale: str) -> dict[str, Any]:
    """Measure per skill, after the first second, the distance of the body along the ground and the change of pose."""
    agent, body = load(run), BODIES[Run(run).config["domain"]]
    skills, steps = skills_of(agent, SKILLS[scale]), round(SECONDS[scale] / body.seconds)
    physics = np.stack(play(run, skills, steps, [0] * len(skills)).physics, axis=1)  # (time, skill, state)
    seen = physics[round(1 / body.seconds) :, :, : body.positions]
    time = (len(seen) - 1) * body.seconds
    way = np.linalg.norm(np.diff(seen[..., body.ground], axis=0), axis=2).sum(axis=0) / time
    pose = np.delete(seen, body.ground, axis=2) if len(body.ground) < body.positions else seen
    change = np.abs(np.diff(pose, axis=0)).mean(axis=2).sum(axis=0) / time
    strips = [_strip(run, skills[index], index, steps) for index in range(STRIPS[scale])]
    return {"speed": way.tolist(), "pose": change.tolist(), "strips": strips}


def _strip(run: Path, skill: Any, index: int, steps: int) -> str:
    """Return the name of a picture in the run's folder, or the reason why there is none."""
    frames = render(run, skill, steps, max(1, steps // FRAMES))
    if isinstance(frames, str):
        return frames
    name = f"static-{index}.png"
    save_picture(run / FOLDER / name, side_by_side(frames[:FRAMES]))
    return name


class Static(Experiment):
    name = "static"
    title = "Static poses and motion"
    shows = "the figure of static poses"
    question = "Do skills keep moving, or do they freeze in a pose?"
    claim = "All DIAYN skills get stuck in frozen poses, while CIC's are in constant motion."
    domains = by_scale(("gridworld",), ("walker", "quadruped"), ("walker", "quadruped"))
    seeds = by_scale(1, 3, 3)
    pretrainings = {TITLES[method]: {"objective": method} for method in ("diayn", "cic")}  # noqa: RUF012
    measurements = {"static": measure_motion}  # noqa: RUF012

    def runs(self, setup: ExperimentSetup) -> list[PlannedRun]:
        if setup.domain is not None and setup.domain not in BODIES:
            raise UserError(f"the experiment static does not support {setup.domain}: choose one of {', '.join(BODIES)}")
        return super().runs(setup)

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        panels, lines, parts = [], [], []
        for domain in dict.fromkeys(member.domain for member in found.members):
            for key, what in MOTIONS.items():
                means = {v: [_mean(m, key) for m in _measured(found, v, domain)] for v in found.variants}
                texts = {variant: mean_text(values) for variant, values in means.items()}
                panels.append(dots_panel(found, words(domain), means, what))
                lines.append([domain, what, *texts.values()])
                parts.append(f"{domain}, {what.lower()}: {', '.join(f'{v} {text}' for v, text in texts.items())}")
        caption = (
            "Mean over skills after the first second, a dot per run: how much the joints move, and how fast the body "
            "does."
        )
        numbers = Plot(self.name, self.title, caption, tuple(panels), {}, 2, (3.2, 1.3), (3.6, 1.5), 0.3)
        strips, data = _strips(found), _data(found)
        film = "First skills of the first seed, at equal times of an episode's first ten seconds."
        pictures = Plot(f"{self.name}_strips", "Filmstrips", film, strips, {}, 1, (6.8, 1.05), (7.0, 1.0))
        table_caption = "Means over skills ± standard errors over seeds."
        header = ("Domain", "Motion", *found.variants)
        table = Table(self.name, self.title, table_caption, header, lines, heads=2, records=data)
        summary = f"After the first second: {'; '.join(parts)}."
        return ExperimentResult((numbers, pictures) if strips else (numbers,), summary, (table,), data)


def _measured(found: ExperimentRuns, variant: str, domain: str) -> list[ExperimentRun]:
    return [member for member in found.of(variant, domain=domain) if "static" in member.measured]


def _mean(member: ExperimentRun, key: str) -> float:
    """Over the run's skills."""
    return float(np.mean(member.measured["static"][key]))


def _strips(found: ExperimentRuns) -> tuple[Panel, ...]:
    """Of the first run of each variant and domain."""
    panels, shown = [], set()
    for member in found.members:
        if "static" not in member.measured or (member.variant, member.domain) in shown:
            continue
        shown.add((member.variant, member.domain))
        for index, name in enumerate(member.measured["static"]["strips"]):
            title = f"{words(member.domain)}, {member.variant}, skill {index}"
            picture = read_picture(member.files, name)
            panels.append(picture_panel(title, picture, f"Pictures of {title} over ten seconds."))
    return tuple(panels)


def _data(found: ExperimentRuns) -> list[dict[str, Any]]:
    data = []
    for member in found.members:
        values = member.measured.get("static", {"pose": [], "speed": []})
        for skill, (pose, speed) in enumerate(zip(values["pose"], values["speed"], strict=True)):
            row = {"domain": member.domain, "method": member.variant, "seed": member.seed, "skill": skill}
            data.append(row | {"pose": pose, "speed": speed})
    return data
