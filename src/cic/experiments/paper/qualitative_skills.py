"""Figure "qualitative skills": the skill that does best on each task, as a filmstrip and a film."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cic.api import load
from cic.core.errors import UserError
from cic.experiments.experiment import Experiment, ExperimentResult, by_scale
from cic.experiments.experiment_runs import ExperimentRuns
from cic.experiments.measurements import FOLDER, measured_file, read_picture, save_picture
from cic.experiments.panels import listed, picture_panel
from cic.experiments.rollouts import FRAMES, Picture, play, render, side_by_side, skills_of
from cic.report.figures import Plot
from cic.report.pictures import recording
from cic.report.tables import Table, words

SKILLS, STARTS, STEPS = by_scale(3, 32, 64), by_scale(1, 2, 3), by_scale(50, 1_000, 1_000)
FILM = by_scale(40, 400, 400)


def measure_best_skills(run: Path, scale: str) -> dict[str, Any]:
    """Find the best of many random skills on each task without finetuning, with pictures of it."""
    agent = load(run)
    skills, starts = skills_of(agent, SKILLS[scale]), STARTS[scale]
    seen = play(run, np.repeat(skills, starts, axis=0), STEPS[scale], [s for _ in skills for s in range(starts)])
    found = {}
    for task in [name for name in seen.returns if name != "reward"]:
        means = seen.returns[task].reshape(len(skills), starts).mean(axis=1)
        best = int(means.argmax())
        frames = render(run, skills[best], FILM[scale], max(1, FILM[scale] // (4 * FRAMES)))
        entry = {"skill": skills[best].tolist(), "return": float(means[best]), "typical": float(means.mean())}
        if isinstance(frames, str):
            found[task] = entry | {"strip": frames, "film": None}
            continue
        save_picture(run / FOLDER / f"skills-{task}.png", side_by_side(frames[::4][:FRAMES]))
        found[task] = entry | {
            "strip": f"skills-{task}.png",
            "film": _film(run / FOLDER / f"skills-{task}.mp4", frames),
        }
    return {"tasks": found}


def _film(path: Path, frames: list[Picture]) -> str | None:
    """Return the name of the film; None without the extra `video`."""
    try:
        return recording.write_film(frames, recording.FRAME_RATE, path).name
    except UserError:
        return None


class QualitativeSkills(Experiment):
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
    measurements = {"skills": measure_best_skills}  # noqa: RUF012

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        panels, lines, data, films = [], [], [], []
        for member in found.of("CIC"):
            for task, entry in member.measured.get("skills", {"tasks": {}})["tasks"].items():
                picture = read_picture(member.files, entry["strip"])
                title = f"{words(member.domain)}: {words(task).lower()}"
                panels.append(picture_panel(title, picture, f"Pictures of the best of the random skills on {title}."))
                film = measured_file(member.files, entry["film"], ".mp4")
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
        parts = listed([f"{task} {best} (a random skill {mean})" for task, best, mean in lines])
        header = ("Task", "Best skill", "Mean of the skills")
        table = Table("skills", self.title, "Return over an episode without finetuning.", header, lines, records=data)
        summary = f"Return of the best random skill without finetuning: {parts}." if parts else "No run is done."
        return ExperimentResult((plot,), summary, (table,), data, tuple(films))
