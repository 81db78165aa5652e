"""Successive halving (Jamieson & Talwalkar 2016): many short trials; the better half gets trials twice as long."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cic.core.types import Array
from cic.training.searches.base import Candidate, Search, register_search


@register_search
class Halving(Search):
    name = "halving"
    fits = ("box", "cube", "normal", "sphere", "onehot")

    def propose(self) -> Iterator[Candidate]:
        steps = max(self.problem.config.trial_steps // 2, 1)
        rounds = 1
        while 2 ** (rounds + 1) * (rounds + 1) * steps <= self.problem.budget:  # every round takes as many steps
            rounds += 1
        pool = self.problem.space.sample(2**rounds, self.rng)
        for _ in range(rounds):
            yield from (Candidate(skill, steps, start=0) for skill in pool)
            order = np.argsort(-np.array(self.scores()[-len(pool) :]), kind="stable")
            pool, steps = pool[np.sort(order[: len(pool) // 2])], 2 * steps

    def best(self) -> Array | None:
        """The best of the longest trials: scores of shorter trials are less informative."""
        longest = max(trial.candidate.steps for trial in self.trials)
        last = [trial for trial in self.trials if trial.candidate.steps == longest]
        found = max(last, key=lambda trial: trial.score)
        return found.skill if np.isfinite(found.score) else super().best()
