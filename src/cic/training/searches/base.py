"""What a search for a skill is: candidates that act through the policy, one after another, inside the budget.

Each is scored by the task's reward; all that is stepped goes into the replay. (Algorithm 1's "random action" line would
score nothing.) A search is a function of its trials and of what was seen in them: restoring it tells them again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError, unknown
from cic.core.types import Array
from cic.learning.objectives import SkillSpace
from cic.training.library import Library
from cic.training.selection import SearchConfig, default_skill

Seen = tuple[Array, Array]
"""Observations (N, obs) and the rewards (N,) that came with them."""


class Problem(NamedTuple):
    """What a search is about."""

    space: SkillSpace
    config: SearchConfig
    budget: int
    """Steps, over all copies."""
    seed: int = 0
    num_envs: int = 1
    library: Library | None = None
    seen: Callable[[int], Seen] | None = None
    """What the first so many steps showed."""
    infer: Callable[[], Array | None] | None = None
    """The skill that the method itself regresses from all that was seen."""


@dataclass
class Trial:
    """A candidate, the steps that it gets, those it acted for and what it collected in those that count."""

    skill: Array
    length: int
    skip: int = 0
    steps: int = 0
    total: float = 0.0

    @property
    def score(self) -> float:
        """Mean reward per step that counts; −inf where it is no number."""
        mean = self.total / max(self.steps - min(self.skip, self.steps), 1)
        return mean if np.isfinite(mean) else -np.inf


Candidate = tuple[npt.NDArray[Any], int]
"""A skill and the steps that it should get."""


class Search(ABC):
    """Propose candidates, score each, and keep the best (the first of equals)."""

    name: ClassVar[str]
    fits: ClassVar[tuple[str, ...]]
    """Kinds of skill spaces."""
    uses_rest: ClassVar[bool] = False
    """Is a last trial that the budget cuts short worth its steps? Its score is not that of the others."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rng = np.random.default_rng(problem.seed)
        self.trials: list[Trial] = []
        self.chosen: Array | None = None
        self.spent = 0
        self._candidates = self.propose()
        self._begin()

    @abstractmethod
    def propose(self) -> Iterator[Candidate]:
        """The candidates, one at a time; `self.trials` holds all that came before, scored."""

    def best(self) -> Array | None:
        """The skill to keep, once all candidates were tried or the budget is spent; None if none was any good."""
        scores = self.scores()
        return self.trials[int(np.argmax(scores))].skill if np.isfinite(scores).any() else None

    @property
    def fresh(self) -> bool:
        """Does the current trial begin with an episode? The paper's sweep goes on from where the last one stopped."""
        return False

    @property
    def start(self) -> int:
        """Which of the starts that are the same for all a trial that begins with an episode has."""
        return 0

    def scores(self) -> list[float]:
        return [trial.score for trial in self.trials]

    # ---- one trial after another -------------------------------------------------------------------------------

    @property
    def searching(self) -> bool:
        return self.chosen is None

    @property
    def current(self) -> Array:
        return self.trials[-1].skill if self.chosen is None else self.chosen

    def observe(self, reward: Array) -> None:
        """The rewards of one step of every copy under the current candidate."""
        trial = self.trials[-1]
        trial.steps += len(reward)
        self.spent += len(reward)
        if trial.steps > trial.skip:
            trial.total += float(reward.sum(dtype=np.float64))
        if self.spent >= self.problem.budget:
            self.conclude()
        elif trial.steps >= trial.length:
            self._begin()

    def _begin(self) -> None:
        candidate = next(self._candidates, None) if self.spent < self.problem.budget else None
        if candidate is None:
            self.conclude()
            return
        skill, length = candidate[0], self.whole(candidate[1])
        if self.trials and not self.uses_rest and self.spent + length > self.problem.budget:
            self.conclude()
            return
        skip = min(self.skip(length), length - self.problem.num_envs)
        self.trials.append(Trial(np.asarray(skill, np.float32), length, skip))

    def skip(self, length: int) -> int:
        """First steps of a trial of this length that do not count."""
        return self.problem.config.trial_skip

    def whole(self, steps: int) -> int:
        """Copies step together: whole ticks keep candidates equal."""
        copies = self.problem.num_envs
        return -(-steps // copies) * copies

    def count(self, steps: int) -> int:
        """Trials of so many steps for which the budget is enough; at least one."""
        return max(self.problem.budget // self.whole(steps), 1)

    def conclude(self) -> None:
        best = self.best() if self.trials else None
        self.chosen = self.default if best is None else np.asarray(best, np.float32)

    @property
    def default(self) -> Array:
        return default_skill(self.problem.space, self.problem.config.search_value)

    # ---- for the record, and to continue -----------------------------------------------------------------------

    def table(self) -> dict[str, Any]:
        """What trials.json holds."""
        rows = [
            {"skill": t.skill.tolist(), "steps": t.steps, "return": t.total if np.isfinite(t.total) else None}
            for t in self.trials
        ]
        chosen = None if self.chosen is None else self.chosen.tolist()
        place = next((i for i, row in enumerate(rows) if row["skill"] == chosen), None)
        return {"search": self.name, "chosen": place, "skill": chosen, "trials": rows}

    def state(self) -> dict[str, Any]:
        return {
            "skills": [trial.skill.tolist() for trial in self.trials],
            "steps": [trial.steps for trial in self.trials],
            "totals": [trial.total for trial in self.trials],
            "chosen": None if self.chosen is None else self.chosen.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Tell the trials again: the same proposals come, because they depend on nothing but seed and trials.

        A search that is over is only remembered: what it saw may be forgotten.
        """
        told = list(zip(state["skills"], state["steps"], state["totals"], strict=True))
        if state["chosen"] is not None:
            self.chosen = np.array(state["chosen"], np.float32)
            self.trials = [Trial(np.array(skill, np.float32), steps, 0, steps, total) for skill, steps, total in told]
            return
        self.__init__(self.problem)  # type: ignore[misc]
        for index, (_, steps, total) in enumerate(told):
            if index == len(self.trials):
                self._begin()
            self.trials[index].steps, self.trials[index].total = steps, total
            self.spent = sum(trial.steps for trial in self.trials)


# ---- the registry ----------------------------------------------------------------------------------------------

_REGISTRY: dict[str, type[Search]] = {}
T = TypeVar("T", bound=type[Search])


def register_search(cls: T) -> T:
    """Class decorator: `--search NAME` finds it by its `name`."""
    _REGISTRY[cls.name] = cls
    return cls


def searches() -> dict[str, type[Search]]:
    return dict(sorted(_REGISTRY.items()))


def make_search(problem: Problem, name: str) -> Search:
    """The search by its name; refuses what does not fit the skills."""
    if name not in _REGISTRY:
        raise unknown("search", name, [*_REGISTRY, "auto", "paper"])
    cls, kind = _REGISTRY[name], problem.space.kind
    if kind not in cls.fits:
        fitting = ", ".join(other.name for other in searches().values() if kind in other.fits)
        raise UserError(f"the search `{name}` does not fit {kind} skills; choose {fitting}")
    return cls(problem)
