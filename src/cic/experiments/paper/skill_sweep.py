"""Figure "skill grid sweep": return against the value of a constant skill."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cic.api import load
from cic.experiments.experiment import Experiment, ExperimentResult, by_scale, tasks_of
from cic.experiments.experiment_runs import ExperimentRuns
from cic.experiments.panels import mean_text, styles
from cic.experiments.rollouts import play
from cic.report.figures import Panel, Plot
from cic.report.learning_curves import curve
from cic.report.tables import many, words
from cic.runs.contents import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VALUES, STARTS, STEPS = by_scale(3, 11, 11), by_scale(1, 5, 10), by_scale(50, 1_000, 1_000)


def measure_sweep(run: Path, scale: str) -> dict[str, Any]:
    """Measure the returns of constant skills on every task, each from the same few starts."""
    values, starts = np.linspace(0, 1, VALUES[scale]), STARTS[scale]
    dim = load(run).objective.skills.dim
    skills = np.repeat(np.tile(values[:, None], dim), starts, axis=0).astype(np.float32)
    seen = play(run, skills, STEPS[scale], [start for _ in values for start in range(starts)])
    returns = {
        task: total.reshape(len(values), starts).tolist() for task, total in seen.returns.items() if task != "reward"
    }
    return {"values": values.tolist(), "returns": returns}


class SkillSweep(Experiment):
    name = "sweep"
    title = "Return of constant skills"
    shows = "figure (d) of the skill ablations"
    question = "How much does the choice of a skill matter, before anything is finetuned?"
    claim = "Choosing the right skill has a substantial effect: the return changes much along the sweep over [0, 1]."
    domains = by_scale(("gridworld",), ("quadruped",), ("quadruped",))
    measurements = {"sweep": measure_sweep}  # noqa: RUF012

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        domain, runs = found.members[0].domain, [member for member in found.of("CIC") if "sweep" in member.measured]
        style, data, panels, gains = styles(["CIC"])["CIC"], [], [], []
        for task in tasks_of(domain, ("stand", "run")):
            series = []
            for member in runs:
                measured = member.measured["sweep"]
                means = np.array(measured["returns"][task]).mean(axis=1)
                series.append(Series(np.array(measured["values"]), means))
                gains.append((float(means.max()), float(means.mean())))
                data += [
                    {"task": f"{domain}-{task}", "seed": member.seed, "value": value, "start": start, "return": total}
                    for value, starts in zip(measured["values"], measured["returns"][task], strict=True)
                    for start, total in enumerate(starts)
                ]
            panels.append(
                Panel(f"{words(domain)}: {words(task).lower()}", _draw(series, style), "Return by skill value.")
            )
        best, mean = ([pair[place] for pair in gains] for place in (0, 1))
        ratio = f" ({np.mean(best) / np.mean(mean):.1f} times)" if gains and np.mean(mean) > 0 else ""
        summary = (
            f"Over {many(len(runs), 'run')} and {many(len(panels), 'task')} the best value of the sweep returns "
            f"{mean_text(best)}, the mean value {mean_text(mean)}{ratio}."
        )
        caption = (
            "Return of skills whose entries all have one value: a thin line per run (mean over starts), and their mean."
        )
        label, columns = {found.label("CIC"): style}, 2 if len(panels) < 3 else 3
        plot = Plot(self.name, self.title, caption, tuple(panels), label, columns, (2.4, 1.9))
        return ExperimentResult((plot,), summary, data=data)


def _draw(series: list[Series], style: Any) -> Any:
    def draw(axes: Axes, _: bool) -> None:
        for one in series:
            axes.plot(*one, color=style.colour, linewidth=0.7, alpha=0.5)
        line = curve(series)
        if line is None:
            axes.text(0.5, 0.5, "no runs", ha="center", color="#888888", transform=axes.transAxes)
        else:
            axes.plot(line.steps, line.mean, **style.line, **style.point)
        axes.set(xlabel="Value of every entry of the skill", ylabel="Return")

    return draw
