"""Every one-hot skill once, for an equal share of the budget."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cic.training.searches.base import Candidate, Search, register_search


@register_search
class Each(Search):
    name = "each"
    fits = ("onehot",)

    def propose(self) -> Iterator[Candidate]:
        num_envs, dim = self.problem.num_envs, self.problem.space.dim
        steps = max(self.problem.budget // (dim * num_envs), 1) * num_envs
        yield from (Candidate(skill, steps) for skill in np.eye(dim, dtype=np.float32))
