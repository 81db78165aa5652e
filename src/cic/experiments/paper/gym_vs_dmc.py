"""Figure "OpenAI Gym against DeepMind Control": termination on falling carries information about the task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cic.core.paper_scores import TITLES
from cic.experiments.experiment import Experiment, ExperimentResult, by_scale
from cic.experiments.experiment_runs import ExperimentRuns
from cic.experiments.panels import legend, listed, mean_text, styles
from cic.experiments.zero_shot_returns import at_the_end, zero_shot
from cic.report.figures import Plot
from cic.report.figures.curve_plots import curve_panel
from cic.report.learning_curves import curve

GYM, DMC = "gymnasium:Hopper-v5", "hopper"
PANELS = {"Gymnasium Hopper": (GYM, "reward"), "DMC hopper: stand": (DMC, "stand"), "DMC hopper: hop": (DMC, "hop")}


class GymVsDMC(Experiment):
    name = "gym-vs-dmc"
    title = "Early termination leaks reward"
    shows = "the figure of Gym against DMC"
    question = "Do skills emerge because episodes end when the agent falls?"
    claim = (
        "On Gym's Hopper, whose episodes end on falling, DIAYN, ICM and even a fixed reward of 1 per step earn "
        "extrinsic reward, the fixed one most. On DMC's hopper, with episodes of fixed length, DIAYN does not and ICM "
        "does."
    )
    domains = by_scale((GYM, DMC), (GYM, DMC), (GYM, DMC))
    own_domain = True
    seeds = by_scale(1, 3, 3)
    steps = by_scale({"steps": 1_200}, {}, {})
    """An episode of DMC's has 1,000 steps, and its return is logged at its end."""

    def pretrainings_at(self, scale: str) -> Mapping[str, Mapping[str, Any]]:
        return {TITLES[method]: {"objective": method, **self.steps[scale]} for method in ("diayn", "icm", "fixed")}

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        looks, panels, data, parts = styles(found.variants), [], [], []
        for title, (domain, task) in PANELS.items():
            lines, ends = [], {}
            for variant in found.variants:
                runs = [(m.seed, s) for m in found.of(variant, domain=domain) if (s := zero_shot(found, m, (task,)))]
                ends[variant] = [at_the_end(series) for _, series in runs]
                if (line := curve([series for _, series in runs])) is not None:
                    lines.append((found.label(variant), looks[variant], line))
                data += [
                    {
                        "environment": domain,
                        "task": task,
                        "method": variant,
                        "seed": seed,
                        "step": int(step),
                        "return": value,
                    }
                    for seed, series in runs
                    for step, value in zip(series.steps, series.values.tolist(), strict=True)
                ]
            panels.append(curve_panel(title, lines, "Pre-training steps", "Extrinsic return"))
            parts.append(f"{title} {listed([f'{variant} {mean_text(values)}' for variant, values in ends.items()])}")
        caption = (
            "Extrinsic return of an episode while pre-training without it: mean ± standard error over runs. The "
            "returns of the two libraries are on different scales."
        )
        plot = Plot(self.name, self.title, caption, tuple(panels), legend(found), 3, (2.4, 2.0))
        return ExperimentResult((plot,), f"Extrinsic return over the last quarter: {'; '.join(parts)}.", data=data)
