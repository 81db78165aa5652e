"""Figure "skill projection": the skill is encoded before it is contrasted, or contrasted as it is."""

from __future__ import annotations

from cic.experiments.experiment import Experiment, ExperimentResult, ExperimentSetup, PlannedRun, by_scale, pretrain
from cic.experiments.experiment_runs import ExperimentRuns
from cic.experiments.zero_shot_returns import compare_variants


class Projection(Experiment):
    name = "projection"
    title = "Skill projection"
    shows = "figure (a) of the skill ablations"
    question = "Does it matter that skills are projected before they are contrasted?"
    claim = "Projecting skill vectors after sampling them from noise significantly improves the zero-shot return."
    domains = by_scale(("gridworld",), ("quadruped",), ("quadruped",))

    def runs(self, setup: ExperimentSetup) -> list[PlannedRun]:
        return [
            planned
            for domain, seed in self.domains_and_seeds(setup)
            for planned in (
                pretrain(setup, "projection", domain, seed),
                pretrain(setup, "no projection", domain, seed, projection=False),
            )
        ]

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        return compare_variants(found, self.name, self.title, ("stand",))
