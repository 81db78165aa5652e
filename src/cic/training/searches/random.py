"""Skills drawn as in pre-training, each for the same number of steps."""

from __future__ import annotations

from collections.abc import Iterator

from cic.training.searches.base import Candidate, Search, register_search


@register_search
class RandomSearch(Search):
    name = "random"
    fits = ("box", "cube", "normal", "sphere", "onehot")

    def propose(self) -> Iterator[Candidate]:
        steps = self.problem.config.trial_steps
        for _ in range(self.count(steps)):
            yield Candidate(self.problem.space.sample(1, self.rng)[0], steps)
