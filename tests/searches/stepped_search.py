"""A search without a loop: its trials advance one environment step at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from cic.core.types import Array
from cic.training.searches import Candidate, Problem, Trial, make_search


class SteppedSearch:
    """Gives the current candidate, takes its rewards, and ends with the chosen skill."""

    def __init__(self, problem: Problem, name: str) -> None:
        self.search = make_search(problem, name)
        self.trials = self.search.trials
        self._candidates = self.search.within_budget()
        self._steps, self._total = 0, 0.0
        self.candidate: Candidate | None = next(self._candidates, None)
        self.chosen: Array | None = self.search.choose() if self.candidate is None else None

    @property
    def searching(self) -> bool:
        return self.candidate is not None

    @property
    def current(self) -> Array:
        if self.candidate is not None:
            return self.candidate.skill
        assert self.chosen is not None
        return self.chosen

    def observe(self, reward: np.ndarray) -> None:
        """The rewards of one step of every environment under the current candidate."""
        assert self.candidate is not None
        self._steps += len(reward)
        if self._steps > (self.candidate.skip or 0):
            self._total += float(reward.sum(dtype=np.float64))
        if self._steps < self.candidate.steps and self.search.spent + self._steps < self.search.problem.budget:
            return
        self.trials.append(Trial(self.candidate, self._steps, self._total))
        self._steps, self._total = 0, 0.0
        self.candidate = next(self._candidates, None)
        if self.candidate is None:
            self.chosen = self.search.choose()

    def table(self) -> dict[str, Any]:
        assert self.chosen is not None
        return self.search.table(self.chosen)
