"""A skill library: a few skills label states with rewards, a regression scores all the others, the best are tried.

A third of the budget goes to skills that lead to where nothing is known yet. Then, one after another, the skill that
the states labelled so far make look best is tried, from a few starts that are the same for all, and its states are
labels too. Of these the best is kept, by what it got and by what the labels of all now say of it: its paths in the
library are longer than its trials, and show whether it stays where it got to.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cic.core.errors import UserError
from cic.core.types import Array
from cic.training.library import distances, predicted_scores
from cic.training.searches.base import Candidate, Problem, Search, register_search

STARTS = 3  # of each finalist: a skill that only stays near a good one looks good there


@register_search
class FromLibrary(Search):
    name = "library"
    fits = ("box", "cube", "normal", "sphere", "onehot")

    def __init__(self, problem: Problem) -> None:
        if problem.library is None or problem.seen is None:
            raise UserError("this pre-training has left no skill library: choose --search halving, or pre-train anew")
        self._library, self._seen = problem.library, problem.seen
        self._labelling = 0
        super().__init__(problem)

    def propose(self) -> Iterator[Candidate]:
        skills, budget = self._library.candidates, self.problem.budget
        steps, copies = self.problem.config.trial_steps, self.problem.num_envs
        tried: list[int] = []
        while len(tried) < min(max(self.count(steps) // 3, 1), len(skills)):
            seen = self._seen(self.spent)[0] if self.spent else self._library.paths[:0, 0]
            unknown = distances(self._library, seen)
            unknown[tried] = -np.inf
            tried.append(int(unknown.argmax()))
            yield skills[tried[-1]], steps
        self._labelling = len(self.trials)
        finalists = min(self.problem.config.finalists, len(skills))
        longer = max((budget - self.spent) // (finalists * STARTS * copies), 1) * copies
        tried = []
        while len(tried) < finalists:
            scores = predicted_scores(self._library, *self._seen(self.spent))
            scores[tried] = -np.inf
            tried.append(int(scores.argmax()))
            for _ in range(STARTS):
                yield skills[tried[-1]], longer

    @property
    def fresh(self) -> bool:
        """Labels are better the more they are spread; what decides must be fair."""
        return self._labelling > 0

    def skip(self, length: int) -> int:
        """Finalists are scored as predictions are: by where they get to, the second half of their way."""
        return length // 2 if self._labelling else super().skip(length)

    @property
    def start(self) -> int:
        return (len(self.trials) - 1 - self._labelling) % STARTS

    def best(self) -> Array | None:
        """The best finalist: the trials before only gathered labels, each from wherever the one before it stopped."""
        finalists = self.trials[self._labelling :]
        if not finalists:
            return super().best()
        predicted = predicted_scores(self._library, *self._seen(self.spent))
        scores = []
        for skill, said in zip(self._library.candidates, predicted, strict=True):
            got = [trial.score for trial in finalists if (trial.skill == skill).all()]
            scores.append(said + np.mean(got) if got else -np.inf)
        place = int(np.argmax(scores))
        return self._library.candidates[place] if np.isfinite(scores[place]) else super().best()
