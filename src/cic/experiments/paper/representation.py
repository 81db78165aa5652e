"""Figure "the importance of representation learning": CIC with and without it, and without the entropy reward."""

from __future__ import annotations

from cic.experiments.experiment import Experiment, ExperimentResult, by_scale
from cic.experiments.experiment_runs import ExperimentRuns
from cic.experiments.zero_shot_returns import compare_variants


class Representation(Experiment):
    name = "representation"
    title = "Representation learning"
    shows = "the figure with and without representation learning, and without entropy"
    question = "Does CIC explore without its representation learning, or without its entropy reward?"
    claim = (
        "Without representation learning the policy collapses: its zero-shot return on quadruped stand stays near zero "
        "over 2M steps. With representation learning but the discriminator as the only reward it collapses as well."
    )
    domains = by_scale(("gridworld",), ("quadruped",), ("quadruped",))
    pretrainings = {  # noqa: RUF012
        "CIC": {},
        "no representation learning": {"representation": False},
        "no entropy": {"entropy": False},
    }

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        return compare_variants(found, self.name, self.title, ("stand",))
