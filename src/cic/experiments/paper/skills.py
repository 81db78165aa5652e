"""Figure "qualitative skills": the skill that does best on each task, as a filmstrip and a film."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cic.api import load
from cic.experiments.base import Experiment, Found, Outcome, Planned, Setup, by_scale, pretrain, register
from cic.experiments.behaviour import (
    FRAMES,
    act,
    kept_file,
    pictures,
    read_picture,
    save_film,
    save_picture,
    side_by_side,
    skills_of,
)
from cic.experiments.measuring import FOLDER
from cic.experiments.paper_figures import listed, picture_panel
from cic.report.figures import Plot
from cic.report.tables import Table, rows, words

SKILLS, STARTS, STEPS = by_scale(3, 32, 64), by_scale(1, 2, 3), by_scale(50, 1_000, 1_000)
FILM = by_scale(40, 400, 400)


def chosen(run: Path, scale: str) -> dict[str, Any]:
    """Of many random skills the best on each task without finetuning, with pictures of it."""
    agent = load(run)
    skills, starts = skills_of(agent, SKILLS[scale]), STARTS[scale]
    seen = act(run, np.repeat(skills, starts, axis=0), STEPS[scale], [s for _ in skills for s in range(starts)])
    found = {}
    for task, paid in seen.rewards.items():
        means = paid.reshape(len(skills), starts).mean(axis=1)
        best = int(means.argmax())
        frames = pictures(run, skills[best], FILM[scale], max(1, FILM[scale] // (4 * FRAMES)))
        entry = {"skill": skills[best].tolist(), "return": float(means[best]), "typical": float(means.mean())}
        if isinstance(frames, str):
            found[task] = entry | {"strip": frames, "film": None}
            continue
        save_picture(run / FOLDER / f"skills-{task}.png", side_by_side(frames[::4][:FRAMES]))
        filmed = save_film(run / FOLDER / f"skills-{task}.mp4", frames)
        found[task] = entry | {"strip": f"skills-{task}.png", "film": f"skills-{task}.mp4" if filmed else None}
    return {"tasks": found}


@register
class Skills(Experiment):
    name = "skills"
    title = "Skills to look at"
    shows = "the figure of qualitative skills"
    question = "What do skills look like?"
    claim = (
        "The walker learns to balance and move, the quadruped to flip upright and walk, the arm to move without "
        "locking; a single behaviour is isolated by fixing a skill."
    )
    seeds = by_scale(1, 1, 1)
    domains = by_scale(("gridworld",), ("walker", "quadruped", "jaco"), ("walker", "quadruped", "jaco"))
    measurements = {"skills": chosen}  # noqa: RUF012

    def runs(self, setup: Setup) -> list[Planned]:
        return [
            pretrain(setup, "CIC", domain, seed) for domain in self.domains_of(setup) for seed in self.seeds_of(setup)
        ]

    def outcome(self, found: Found) -> Outcome:
        panels, lines, data, films = [], [], [], []
        for member in found.of("CIC"):
            for task, entry in member.measured.get("skills", {"tasks": {}})["tasks"].items():
                assert member.record is not None
                picture = read_picture(member.record.path, entry["strip"])
                title = f"{words(member.domain)}: {words(task).lower()}"
                panels.append(picture_panel(title, picture, f"Pictures of the best of the random skills on {title}."))
                film = kept_file(member.record.path, entry["film"], ".mp4")
                films += [film] if film is not None else []
                lines.append([f"{member.domain}-{task}", f"{entry['return']:.0f}", f"{entry['typical']:.0f}"])
                data.append(
                    {
                        "task": f"{member.domain}-{task}",
                        "seed": member.seed,
                        "best": entry["return"],
                        "mean": entry["typical"],
                    }
                )
        caption = "The best of the random skills on each task without finetuning, at equal times from left to right."
        plot = Plot(
            self.name,
            self.title,
            caption,
            tuple(panels or (picture_panel("", "no run is done", ""),)),
            {},
            1,
            (6.8, 1.05),
            (7.0, 1.0),
        )
        told = listed([f"{task} {best} (a random skill {mean})" for task, best, mean in lines])
        header = ("Task", "Best skill", "Mean of the skills")
        table = Table(
            "skills", self.title, "Return over an episode without finetuning.", header, rows(lines), records=data
        )
        said = f"Return of the best random skill without finetuning: {told}." if told else "No run is done."
        return Outcome((plot,), said, (table,), data, tuple(films))
