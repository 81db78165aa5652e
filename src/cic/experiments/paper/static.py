"""Figure "static poses": how much DIAYN's and CIC's skills still move after the first second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cic.api import load
from cic.core.published import TITLES
from cic.experiments.base import Experiment, Found, Outcome, Planned, Setup, by_scale, pretrain, register
from cic.experiments.behaviour import act, filmstrip, read_picture, save_picture, skills_of
from cic.experiments.drawing import dots_panel, listed, mean_text, picture_panel, styles
from cic.experiments.measuring import FOLDER
from cic.report.figures import Plot
from cic.report.score_tables import words
from cic.report.tables import Table, rows

SKILLS, SECONDS, STRIPS = by_scale(4, 16, 16), by_scale(2.0, 10.0, 10.0), by_scale(1, 3, 3)
BODIES: dict[str, tuple[tuple[int, ...], int, float]] = {
    "walker": ((1,), 9, 0.025),
    "quadruped": ((0, 1), 23, 0.02),
    "hopper": ((0,), 7, 0.02),
    "point_mass": ((0, 1), 2, 0.02),
    "gridworld": ((0, 1), 2, 0.04),
}
"""Where a body is along the ground, how many positions it has, and the seconds of a step."""


def motion(run: Path, scale: str) -> dict[str, Any]:
    """Per skill, after the first second: the way of the body along the ground, and how much the pose varies."""
    agent = load(run)
    domain = str(agent_domain(run))
    root, count, seconds = BODIES[domain]
    skills, first = skills_of(agent, SKILLS[scale]), round(1 / seconds)
    seen = act(run, skills, round(SECONDS[scale] / seconds), [0] * len(skills)).physics[first:, :, :count]
    time = (len(seen) - 1) * seconds
    way = np.linalg.norm(np.diff(seen[..., root], axis=0), axis=2).sum(axis=0) / time
    pose = np.delete(seen, root, axis=2) if len(root) < count else seen
    change = np.abs(np.diff(pose, axis=0)).mean(axis=2).sum(axis=0) / time
    reasons = [_strip(run, skills[index], index, round(SECONDS[scale] / seconds)) for index in range(STRIPS[scale])]
    return {"speed": way.tolist(), "pose": change.tolist(), "strips": reasons}


def agent_domain(run: Path) -> Any:
    from cic.runs.folder import Run

    return Run(run).config["domain"]


def _strip(run: Path, skill: Any, index: int, steps: int) -> str:
    """The name of a picture in the run's folder, or why there is none."""
    picture = filmstrip(run, skill, steps)
    if isinstance(picture, str):
        return picture
    name = f"static-{index}.png"
    save_picture(run / FOLDER / name, picture)
    return name


@register
class Static(Experiment):
    name = "static"
    title = "Static poses and motion"
    shows = "the figure of static poses"
    question = "Do skills keep moving, or do they freeze in a pose?"
    claim = "All DIAYN skills get stuck in frozen poses, while CIC's are in constant motion."
    domains = by_scale(("gridworld",), ("walker", "quadruped"), ("walker", "quadruped"))
    seeds = by_scale(1, 3, 3)
    methods = ("diayn", "cic")
    measurements = {"static": motion}  # noqa: RUF012

    def runs(self, setup: Setup) -> list[Planned]:
        return [
            pretrain(setup, TITLES[method], domain, seed, method)
            for domain in self.domains_of(setup)
            for seed in self.seeds_of(setup)
            for method in self.methods
        ]

    def outcome(self, found: Found) -> Outcome:
        domains = list(dict.fromkeys(member.domain for member in found.members))
        looks, labels = styles(found.variants), {variant: found.label(variant) for variant in found.variants}
        data, panels, strips, lines = [], [], [], []
        for domain in domains:
            runs = {v: [m for m in found.of(v, domain=domain) if "static" in m.measured] for v in found.variants}
            for key, what in (("pose", "Change of pose (rad/s)"), ("speed", "Way of the body (m/s)")):
                means = {v: [float(np.mean(m.measured["static"][key])) for m in ms] for v, ms in runs.items()}
                panels.append(dots_panel(f"{words(domain)}", means, looks, what, labels=labels))
                lines.append([domain, what, *(mean_text(means[v]) for v in found.variants)])
            for variant, members in runs.items():
                data += [
                    {"domain": domain, "method": variant, "seed": m.seed, "skill": i, "pose": p, "speed": s}
                    for m in members
                    for i, (p, s) in enumerate(
                        zip(m.measured["static"]["pose"], m.measured["static"]["speed"], strict=True)
                    )
                ]
                for index, name in enumerate(members[0].measured["static"]["strips"] if members else ()):
                    assert members[0].record is not None
                    picture = read_picture(members[0].record.path, name)
                    title = f"{words(domain)}, {variant}, skill {index}"
                    strips.append(picture_panel(title, picture, f"Pictures of {title} over ten seconds."))
        caption = (
            "Mean over skills after the first second, a dot per run: how much the joints move, and how fast the body "
            "does."
        )
        numbers = Plot(self.name, self.title, caption, tuple(panels), {}, 2, (3.2, 1.3), (3.6, 1.5), 0.3)
        told = listed(
            [
                f"{line[0]}: {line[1][0].lower()}{line[1][1:]} "
                + ", ".join(f"{v} {t}" for v, t in zip(found.variants, line[2:], strict=True))
                for line in lines
            ]
        )
        table = Table(
            "static",
            self.title,
            "Means over skills ± standard errors over seeds.",
            ("Domain", "Motion", *found.variants),
            rows(lines),
            heads=2,
            records=data,
        )
        film = Plot(
            f"{self.name}_strips",
            "Filmstrips",
            "First skills of the first seed, at equal times of an episode's first ten seconds.",
            tuple(strips),
            {},
            1,
            (6.8, 1.05),
            (7.0, 1.0),
        )
        plots = (numbers, film) if strips else (numbers,)
        return Outcome(plots, f"After the first second, {told}.", (table,), data)
