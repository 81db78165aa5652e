"""CMA-ES (Hansen 2016) through the `cma` package, bounded to the unit cube, with the generator of the search."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cic.core.errors import UserError
from cic.core.types import Array
from cic.training.searches.base import Candidate, Problem, Search, register_search


@register_search
class CMAES(Search):
    name = "cma"
    fits = ("box",)

    def __init__(self, problem: Problem, default: Array | None = None) -> None:
        if problem.space.dim < 2:
            raise UserError("CMA-ES needs skills of at least two dimensions; choose grid or random")
        super().__init__(problem, default)

    def propose(self) -> Iterator[Candidate]:
        import cma

        dim, steps = self.problem.space.dim, self.problem.config.trial_steps
        options = {
            "bounds": [0, 1],
            "popsize": 8,
            "verbose": -9,
            "randn": lambda *shape: self.rng.standard_normal(shape),
            "seed": np.nan,  # do not seed numpy's global generator
        }
        strategy = cma.CMAEvolutionStrategy(np.full(dim, 0.5), 0.25, options)
        while True:
            generation = strategy.ask()
            yield from (Candidate(np.asarray(skill, np.float32), steps) for skill in generation)
            costs = -np.array(self.scores()[-len(generation) :])
            worst = costs[np.isfinite(costs)].max(initial=0.0)
            strategy.tell(generation, np.where(np.isfinite(costs), costs, worst + 1).tolist())
