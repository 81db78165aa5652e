"""Figure "skill dimension": zero-shot return against the number of dimensions of a skill.

Embeddings are as wide as the skill, as in the released code. With one dimension,
normalisation leaves only their sign, and the contrastive loss has no gradient: that point is CIC without
representation learning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cic.experiments.experiment import Experiment, ExperimentResult, by_scale, tasks_of
from cic.experiments.experiment_runs import ExperimentRuns
from cic.experiments.panels import styles
from cic.experiments.zero_shot_returns import at_the_end, name_of, summary, zero_shot
from cic.report.figures import Panel, Plot
from cic.report.statistics import standard_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes


ALL = (1, 2, 4, 8, 16, 32, 64, 128)


class Dimension(Experiment):
    name = "dimension"
    title = "Skill dimension"
    shows = "figure (b) of the skill ablations"
    question = "How many dimensions should a skill have?"
    claim = (
        "Zero-shot return is poor below about 10 dimensions, grows with the dimension and is best at 64: unlike the "
        "methods before it, CIC makes use of large skill vectors."
    )
    seeds = by_scale(1, 3, 3)
    domains = by_scale(("gridworld",), ("quadruped",), ("quadruped",))
    dimensions = by_scale((1, 4, 16), ALL, ALL)

    def pretrainings_at(self, scale: str) -> Mapping[str, Mapping[str, Any]]:
        return {str(dimension): {"skill_dim": dimension} for dimension in self.dimensions[scale]}

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        domain = found.members[0].domain
        tasks = tasks_of(domain, ("stand",))
        runs = {
            variant: [(member.seed, at_the_end(zero_shot(found, member, tasks))) for member in found.of(variant)]
            for variant in found.variants
        }
        ends = {variant: [value for _, value in pairs] for variant, pairs in runs.items()}
        style = styles(["CIC"])["CIC"]

        def draw(axes: Axes, _: bool) -> None:
            there = [variant for variant, values in ends.items() if values]
            x = [int(variant) for variant in there]
            means = [float(np.mean(ends[variant])) for variant in there]
            errors = [standard_error(ends[variant]) if len(ends[variant]) > 1 else 0.0 for variant in there]
            for variant in there:
                axes.plot([int(variant)] * len(ends[variant]), ends[variant], ".", color=style.colour, alpha=0.45)
            axes.errorbar(x, means, yerr=errors, **style.line, **style.point, capsize=2.5)
            axes.set_xscale("log", base=2)
            axes.set_xticks([int(v) for v in found.variants], [found.label(v) for v in found.variants])
            axes.minorticks_off()
            axes.set(xlabel="Skill dimension", ylabel="Zero-shot return")

        heading = name_of(domain, tasks)
        named = {f"{variant} dimension{'s' * (variant != '1')}": values for variant, values in ends.items()}
        text = summary(found, named, f"Zero-shot return by skill dimension on {heading.lower()}")
        caption = "Return of random skills over the last quarter of pre-training: runs, mean ± standard error."
        panel = Panel(heading, draw, text)
        plot = Plot(self.name, self.title, caption, (panel,), {}, 1, (4.4, 2.6), (4.4, 2.8))
        data = [
            {"skill_dim": int(variant), "seed": seed, "zero_shot_return": value}
            for variant, pairs in runs.items()
            for seed, value in pairs
        ]
        return ExperimentResult((plot,), text, data=data)
