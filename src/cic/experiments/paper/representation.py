"""Figure "the importance of representation learning": CIC with and without it, and without the entropy reward."""

from __future__ import annotations

from typing import Any, ClassVar

from cic.experiments.base import Experiment, Found, Outcome, Planned, Setup, by_scale, pretrain, register
from cic.experiments.zero_shot import compared


@register
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
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        "CIC": {},
        "no representation learning": {"representation": False},
        "no entropy": {"entropy": False},
    }

    def runs(self, setup: Setup) -> list[Planned]:
        return [
            pretrain(setup, variant, domain, seed, **settings)
            for domain in self.domains_of(setup)
            for seed in self.seeds_of(setup)
            for variant, settings in self.variants.items()
        ]

    def outcome(self, found: Found) -> Outcome:
        return compared(found, self.name, self.title, ("stand",), "Zero-shot return")
