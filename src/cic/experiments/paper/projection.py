"""Figure "skill projection": the skill is encoded before it is contrasted, or contrasted as it is."""

from __future__ import annotations

from cic.experiments.experiment import Experiment, ExperimentResult, by_scale
from cic.experiments.experiment_runs import ExperimentRuns
from cic.experiments.zero_shot_returns import compare_variants


class Projection(Experiment):
    name = "projection"
    title = "Skill projection"
    shows = "figure (a) of the skill ablations"
    question = "Does it matter that skills are projected before they are contrasted?"
    claim = "Projecting skill vectors after sampling them from noise significantly improves the zero-shot return."
    domains = by_scale(("gridworld",), ("quadruped",), ("quadruped",))
    pretrainings = {"projection": {}, "no projection": {"projection": False}}  # noqa: RUF012

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        return compare_variants(found, self.name, self.title, ("stand",))
