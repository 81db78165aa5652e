"""Random skills collect rewards, from which the objective itself infers the skill (APS: least squares)."""

from __future__ import annotations

from collections.abc import Iterator

from cic.core.types import Array
from cic.training.searches.base import Candidate, Search, register_search


@register_search
class Regress(Search):
    name = "regress"
    fits = ("box", "sphere", "onehot")
    uses_rest = True

    def propose(self) -> Iterator[Candidate]:
        while True:
            yield Candidate(self.problem.space.sample(1, self.rng)[0], self.problem.config.trial_steps)

    def best(self) -> Array | None:
        inferred = self.problem.infer() if self.problem.infer else None
        return super().best() if inferred is None else inferred
