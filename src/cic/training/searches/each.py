"""Every corner once, for an equal share of the budget: for one-hot skills."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cic.training.searches.base import Candidate, Search, register_search


@register_search
class Each(Search):
    name = "each"
    fits = ("onehot",)

    def propose(self) -> Iterator[Candidate]:
        copies, dim = self.problem.num_envs, self.problem.space.dim
        ticks = max(self.problem.budget // (dim * copies), 1)
        yield from ((corner, ticks * copies) for corner in np.eye(dim))
