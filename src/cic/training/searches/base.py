"""A search for a skill: candidates act through the policy, one after another, inside the budget.

Each candidate is scored by the task's reward, and all its steps are stored in the replay. (With random actions, as in
one line of Algorithm 1, scores would not depend on the skill.) A search depends only on its seed, its trials and the
data collected in them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from cic.core.errors import UserError, unknown
from cic.core.types import Array
from cic.learning.objectives import SkillSpace
from cic.training.library import Library
from cic.training.settings import SearchConfig

Labelled = tuple[Array, Array]
"""Observations (N, obs) and the rewards (N,) that came with them."""


class Problem(NamedTuple):
    """The settings of a search and the data that it may use."""

    space: SkillSpace
    config: SearchConfig
    budget: int
    """Environment steps, over all parallel environments."""
    seed: int = 0
    num_envs: int = 1
    library: Library | None = None
    labelled: Callable[[int], Labelled] | None = None
    """The data of the first N steps."""
    infer: Callable[[], Array | None] | None = None
    """The skill that the objective infers from all data by regression."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A skill to try, and how."""

    skill: Array
    steps: int
    skip: int | None = None
    """First steps that do not count; by default `trial_skip`."""
    start: int | None = None
    """The trial starts with a reset to this initial state; None continues where the trial before it stopped, as the
    paper does."""


@dataclass(frozen=True, eq=False)
class Trial:
    """The result of a candidate: its steps, and the rewards in those that count."""

    candidate: Candidate
    steps: int
    total: float

    @property
    def skill(self) -> Array:
        return self.candidate.skill

    @property
    def score(self) -> float:
        """Mean reward per step that counts; −inf if it is not finite."""
        skipped = min(self.candidate.skip or 0, self.steps)
        mean = self.total / max(self.steps - skipped, 1)
        return mean if np.isfinite(mean) else -np.inf


class Search(ABC):
    """Propose candidates, score each, and choose the best (the first of equals)."""

    name: ClassVar[str]
    fits: ClassVar[tuple[str, ...]]
    """Kinds of skill spaces."""
    searches: ClassVar[bool] = True
    """Whether there are trials at all."""
    uses_rest: ClassVar[bool] = False
    """Whether a last trial that the budget cuts short is useful. Its score is not comparable with the others."""

    def __init__(self, problem: Problem, default: Array | None = None) -> None:
        self.problem = problem
        self.rng = np.random.default_rng(problem.seed)
        self.trials: list[Trial] = []
        self._default = default_skill(problem.space, problem.config.search_value) if default is None else default

    @abstractmethod
    def propose(self) -> Iterator[Candidate]:
        """The candidates, one at a time; `self.trials` contains the trials before it."""

    def best(self) -> Array | None:
        """The skill to keep, once all candidates were tried or the budget is spent; None if no score is finite."""
        scores = self.scores()
        return self.trials[int(np.argmax(scores))].skill if np.isfinite(scores).any() else None

    def scores(self) -> list[float]:
        return [trial.score for trial in self.trials]

    @property
    def spent(self) -> int:
        """Environment steps of all trials so far."""
        return sum(trial.steps for trial in self.trials)

    def within_budget(self) -> Iterator[Candidate]:
        """The proposals for which there are steps left, in whole steps of all environments."""
        proposals = self.propose()
        while self.spent < self.problem.budget and (proposed := next(proposals, None)) is not None:
            steps = self.whole(proposed.steps)
            if self.trials and not self.uses_rest and self.spent + steps > self.problem.budget:
                return
            skip = self.problem.config.trial_skip if proposed.skip is None else proposed.skip
            skip = min(skip, steps - self.problem.num_envs)
            yield replace(proposed, skill=np.asarray(proposed.skill, np.float32), steps=steps, skip=skip)

    def whole(self, steps: int) -> int:
        """Rounded up to a multiple of `num_envs`: the environments step together."""
        return -(-steps // self.problem.num_envs) * self.problem.num_envs

    def count(self, steps: int) -> int:
        """The number of trials of `steps` steps that fit into the budget; at least one."""
        return max(self.problem.budget // self.whole(steps), 1)

    def choose(self) -> Array:
        """The skill to finetune."""
        best = self.best() if self.trials else None
        return self._default if best is None else np.asarray(best, np.float32)

    def table(self, chosen: Array) -> dict[str, Any]:
        """The content of trials.json."""
        rows = [
            {"skill": t.skill.tolist(), "steps": t.steps, "return": t.total if np.isfinite(t.total) else None}
            for t in self.trials
        ]
        place = next((i for i, row in enumerate(rows) if row["skill"] == chosen.tolist()), None)
        return {"search": self.name, "chosen": place, "skill": chosen.tolist(), "trials": rows}


def default_skill(space: SkillSpace, value: float = 0.5) -> Array:
    """The skill without a search: the constant `value`, the first one-hot vector or the first axis."""
    if space.kind == "box":
        return np.full(space.dim, value, np.float32)
    skill = np.zeros(space.dim, np.float32)
    skill[:1] = space.radius
    return skill


# ---- the registry ----------------------------------------------------------------------------------------------

_REGISTRY: dict[str, type[Search]] = {}
T = TypeVar("T", bound=type[Search])


def register_search(cls: T) -> T:
    """Class decorator: the setting `search` selects the class with this `name`."""
    _REGISTRY[cls.name] = cls
    return cls


def searches() -> dict[str, type[Search]]:
    return dict(sorted(_REGISTRY.items()))


def make_search(problem: Problem, name: str, default: Array | None = None) -> Search:
    """The search with this name; refuses one that does not fit the skill space. `default` is chosen without trials."""
    if name not in _REGISTRY:
        raise unknown("search", name, [*_REGISTRY, "auto", "paper"])
    cls, kind = _REGISTRY[name], problem.space.kind
    if kind not in cls.fits:
        fitting = ", ".join(other.name for other in searches().values() if kind in other.fits)
        raise UserError(f"the search `{name}` does not fit {kind} skills; choose {fitting}")
    return cls(problem, default)
