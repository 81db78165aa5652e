"""The paper's sweep (Laskin et al. 2022, Algorithm 1): constant vectors over [0, 1], a new value every 100 steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cic.training.searches.base import Candidate, Search, register_search


@register_search
class GridSearch(Search):
    name = "grid"
    fits = ("box",)

    def propose(self) -> Iterator[Candidate]:
        steps = self.problem.config.trial_steps
        values = np.linspace(0, 1, self.count(steps))
        yield from (Candidate(np.full(self.problem.space.dim, value, np.float32), steps) for value in values)
