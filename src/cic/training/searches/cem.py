"""The cross-entropy method (Rubinstein 1999): a diagonal Gaussian, first the prior, then fitted to the best third."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cic.training.searches.base import Candidate, Search, register_search


@register_search
class CrossEntropy(Search):
    name = "cem"
    fits = ("box",)

    def propose(self) -> Iterator[Candidate]:
        """Four generations."""
        dim, steps = self.problem.space.dim, self.problem.config.trial_steps
        mean, std = np.full(dim, 0.5), np.full(dim, 12**-0.5)
        size = max(self.count(steps) // 4, 3)
        while True:
            generation = np.clip(mean + std * self.rng.standard_normal((size, dim)), 0, 1)
            yield from (Candidate(skill.astype(np.float32), steps) for skill in generation)
            order = np.argsort(self.scores()[-size:])[::-1]
            elite = generation[order[: max(size // 3, 2)]]
            mean, std = elite.mean(axis=0), elite.std(axis=0) + 0.02
