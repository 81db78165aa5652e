"""Figure "skill projection": the skill is encoded before it is contrasted, or contrasted as it is."""

from __future__ import annotations

from cic.experiments.base import Experiment, Found, Outcome, Planned, Setup, by_scale, pretrain, register
from cic.experiments.zero_shot import compared


@register
class Projection(Experiment):
    name = "projection"
    title = "Skill projection"
    shows = "figure (a) of the skill ablations"
    question = "Does it matter that skills are projected before they are contrasted?"
    claim = "Projecting skill vectors after sampling them from noise significantly improves the zero-shot return."
    domains = by_scale(("gridworld",), ("quadruped",), ("quadruped",))

    def runs(self, setup: Setup) -> list[Planned]:
        return [
            planned
            for domain in self.domains_of(setup)
            for seed in self.seeds_of(setup)
            for planned in (
                pretrain(setup, "projection", domain, seed),
                pretrain(setup, "no projection", domain, seed, projection=False),
            )
        ]

    def outcome(self, found: Found) -> Outcome:
        return compared(found, self.name, self.title, ("stand",), "Zero-shot return")
