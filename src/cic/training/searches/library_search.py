"""A skill library: trials of a few skills label states with rewards, a regression on them scores all other skills.

A third of the budget is spent on skills that lead to states far from all labelled ones. Then, one after another, the
skill with the highest predicted score is tried from a few initial states that are the same for all, and its states
become labels too. The best of these finalists is chosen by its trials and its predicted score together: its paths in
the library are longer than its trials, and show whether it stays at its target.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cic.core.errors import UserError
from cic.core.types import Array
from cic.training.library import distances, predicted_scores
from cic.training.searches.base import Candidate, Problem, Search, register_search

STARTS = 3  # per finalist: with a single one, a skill that stays in place looks the same as one that reaches the target


@register_search
class LibrarySearch(Search):
    name = "library"
    fits = ("box", "cube", "normal", "sphere", "onehot")

    def __init__(self, problem: Problem, default: Array | None = None) -> None:
        if problem.library is None or problem.labelled is None:
            raise UserError(
                "this pre-training has no skill library: choose `search=halving`, or repeat the pre-training with one"
            )
        self._library, self._labelled = problem.library, problem.labelled
        super().__init__(problem, default)

    def propose(self) -> Iterator[Candidate]:
        skills, budget = self._library.candidates, self.problem.budget
        steps, num_envs = self.problem.config.trial_steps, self.problem.num_envs
        tried: list[int] = []
        while len(tried) < min(max(self.count(steps) // 3, 1), len(skills)):
            seen = self._labelled(self.spent)[0] if self.spent else self._library.paths[:0, 0]
            distance = distances(self._library, seen)
            distance[tried] = -np.inf
            tried.append(int(distance.argmax()))
            yield Candidate(skills[tried[-1]], steps)
        finalists = min(self.problem.config.finalists, len(skills))
        longer = max((budget - self.spent) // (finalists * STARTS * num_envs), 1) * num_envs
        tried = []
        while len(tried) < finalists:
            scores = predicted_scores(self._library, *self._labelled(self.spent))
            scores[tried] = -np.inf
            tried.append(int(scores.argmax()))
            for start in range(STARTS):  # scored like the predictions, on the second half of the path
                yield Candidate(skills[tried[-1]], longer, skip=longer // 2, start=start)

    def best(self) -> Array | None:
        """The best finalist. The trials before them only collect labels, each from where the last one stopped."""
        finalists = [trial for trial in self.trials if trial.candidate.start is not None]
        if not finalists:
            return super().best()
        predicted = predicted_scores(self._library, *self._labelled(self.spent))
        scores = []
        for skill, prediction in zip(self._library.candidates, predicted, strict=True):
            achieved = [trial.score for trial in finalists if (trial.skill == skill).all()]
            scores.append(prediction + np.mean(achieved) if achieved else -np.inf)
        place = int(np.argmax(scores))
        return self._library.candidates[place] if np.isfinite(scores[place]) else super().best()
