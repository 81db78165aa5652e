"""Choosing a skill: drawn at random in pre-training, searched for in finetuning.

The search happens inside the finetuning budget, at its beginning. Each candidate acts through the policy for the same
number of steps and is scored by the task's return; all of it goes into the replay. (Algorithm 1's
"random action" line would score nothing.) The search is a function of its trials: restoring it tells them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cic.core.config import require
from cic.core.errors import UserError
from cic.core.types import Array, Bools
from cic.learning.objectives import SkillSpace

Search = Literal["auto", "grid", "random", "cem", "cma", "each", "regress", "fixed"]


@dataclass(frozen=True)
class SearchConfig:
    search: Search = "auto"
    """How the skill is found: `auto` takes grid for continuous skills, each for one-hot ones, regress where the method
    can (APS), random on a sphere. `fixed` tries none and starts with uniform actions, as the released code does."""
    search_steps: int | None = None
    """Steps of the search: as many as the warm-up, or more. The updates that come due beyond the warm-up are made when
    the skill is chosen, on the critic alone, so that it knows the policy before it moves it."""
    trial_steps: int = 100
    """Steps that each candidate gets (grid, random, cem, cma)."""
    trial_skip: int = 0
    """First steps of each trial that do not count, so that a candidate is scored by where it gets to and not by where
    the one before it stopped."""
    search_value: float = 0.5
    """The constant of every coordinate for `fixed`."""

    def __post_init__(self) -> None:
        steps = self.search_steps
        require(steps is None or steps >= 0, f"search_steps must not be negative, not {steps}")
        require(self.trial_skip >= 0, f"trial_skip must not be negative, not {self.trial_skip}")
        require(self.trial_steps >= 1, f"trial_steps must be at least 1, not {self.trial_steps}")


class RandomSkills:
    """Pre-training: each copy draws anew after `space.every` steps and at each reset."""

    def __init__(self, space: SkillSpace, num_envs: int, rng: np.random.Generator) -> None:
        self.space, self.rng = space, rng
        self.current = space.sample(num_envs, rng)
        self.age = np.zeros(num_envs, np.int64)

    @property
    def begins(self) -> Bools:
        """Which copies' skills were just drawn."""
        return np.asarray(self.age == 0)

    def advance(self, done: Bools) -> None:
        self.age += 1
        expired = done if self.space.every is None else done | (self.age >= self.space.every)
        if expired.any():
            self.current = self.current.copy()
            self.current[expired] = self.space.sample(int(expired.sum()), self.rng)
            self.age[expired] = 0

    def state(self) -> dict[str, npt.NDArray[Any]]:
        return {"current": self.current, "age": self.age}

    def restore(self, state: dict[str, npt.NDArray[Any]]) -> None:
        self.current, self.age = np.array(state["current"]), np.array(state["age"])


@dataclass
class Trial:
    """A candidate, the steps it acted for and the return it collected in those that count."""

    skill: Array
    steps: int = 0
    total: float = 0.0

    @property
    def score(self) -> float:
        """Mean reward per step; −inf where the return is no number."""
        mean = self.total / max(self.steps, 1)
        return mean if np.isfinite(mean) else -np.inf


class SkillSearch:
    """Finetuning: propose candidates, score each for `trial_steps`, and keep the best (the first of equals)."""

    def __init__(self, space: SkillSpace, config: SearchConfig, budget: int, seed: int, num_envs: int = 1) -> None:
        self.space, self.budget = space, budget
        self.name = resolve(config.search, space)
        each = self.name == "each"
        ticks = budget // (space.dim * num_envs) if each else -(-config.trial_steps // num_envs)
        self.trial_steps = max(ticks, 1) * num_envs  # copies step together: whole ticks keep candidates equal
        self.skip = min(config.trial_skip, self.trial_steps - num_envs)
        self.count = 0 if self.name in ("fixed", "regress") else max(budget // self.trial_steps, 1)
        if each:
            self.count = min(self.count, space.dim)
        self.default = default_skill(space, config.search_value)
        self.trials: list[Trial] = []
        self.chosen: Array | None = self.default if self.name == "fixed" or budget == 0 else None
        self._proposals = propose(self.name, space, self.count, np.random.default_rng(seed), self._scores)
        self._begin()

    def _scores(self) -> list[float]:
        return [trial.score for trial in self.trials]

    def _begin(self) -> None:
        if self.chosen is None:
            skill = next(self._proposals, None)
            if skill is not None:
                self.trials.append(Trial(skill.astype(np.float32)))

    @property
    def current(self) -> Array:
        if self.chosen is not None:
            return self.chosen
        return self.trials[-1].skill

    @property
    def searching(self) -> bool:
        return self.chosen is None

    def observe(self, reward: Array) -> None:
        """The rewards of one step of every copy under the current candidate."""
        trial = self.trials[-1]
        trial.steps += len(reward)
        if trial.steps > self.skip:
            trial.total += float(reward.sum(dtype=np.float64))
        if trial.steps < self.trial_steps:
            return
        if self.name == "regress" or len(self.trials) < self.count:
            self._begin()
        else:
            self.conclude()

    def conclude(self, inferred: Array | None = None) -> None:
        """Fix the skill: the regressed one, or the best trial's."""
        scores = self._scores()
        if inferred is not None:
            self.chosen = inferred.astype(np.float32)
        elif scores and np.isfinite(scores).any():
            self.chosen = self.trials[int(np.argmax(scores))].skill
        else:
            self.chosen = self.default

    def table(self) -> dict[str, Any]:
        """What trials.json holds."""
        totals = [t.total if np.isfinite(t.total) else None for t in self.trials]
        rows = [
            {"skill": t.skill.tolist(), "steps": t.steps, "return": total}
            for t, total in zip(self.trials, totals, strict=True)
        ]
        scores = self._scores()
        best = int(np.argmax(scores)) if self.name != "regress" and np.isfinite(scores).any() else None
        chosen = self.chosen.tolist() if self.chosen is not None else None
        return {"search": self.name, "chosen": best, "skill": chosen, "trials": rows}

    def state(self) -> dict[str, Any]:
        return {
            "steps": [trial.steps for trial in self.trials],
            "totals": [trial.total for trial in self.trials],
            "chosen": None if self.chosen is None else self.chosen.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Tell the trials again: the same proposals come, because they depend on nothing but seed and scores."""
        for index, (steps, total) in enumerate(zip(state["steps"], state["totals"], strict=True)):
            if index == len(self.trials):
                self._begin()
            self.trials[index].steps, self.trials[index].total = steps, total
        if state["chosen"] is not None:
            self.chosen = np.array(state["chosen"], np.float32)


def resolve(search: Search, space: SkillSpace) -> Search:
    """What `auto` means for this space; refuses what does not fit it."""
    natural: dict[str, Search] = {"none": "fixed", "box": "grid", "sphere": "random", "onehot": "each"}
    natural |= {"cube": "random", "normal": "random"}
    fitting = {
        "none": ("fixed",),
        "box": ("grid", "random", "cem", "cma", "fixed", "regress"),
        "sphere": ("random", "regress", "fixed"),
        "cube": ("random", "fixed"),
        "normal": ("random", "fixed"),
        "onehot": ("each", "random", "fixed"),
    }
    chosen = natural[space.kind] if search == "auto" else search
    if chosen not in fitting[space.kind]:
        raise UserError(
            f"the search `{chosen}` does not fit {space.kind} skills; choose {', '.join(fitting[space.kind])}"
        )
    if chosen == "cma" and space.dim < 2:
        raise UserError("CMA-ES needs skills of at least two dimensions; choose grid or random")
    return chosen


def default_skill(space: SkillSpace, value: float = 0.5) -> Array:
    """The skill when none is searched for: the constant `value`, the first corner, the first axis."""
    if space.kind == "box":
        return np.full(space.dim, value, np.float32)
    skill = np.zeros(space.dim, np.float32)
    skill[:1] = space.radius
    return skill


def propose(
    search: Search, space: SkillSpace, count: int, rng: np.random.Generator, scores: Callable[[], list[float]]
) -> Iterator[npt.NDArray[Any]]:
    """The candidates of a search, one at a time; `scores` are those of all that came before."""
    if search == "grid":
        yield from (np.full(space.dim, value) for value in np.linspace(0, 1, count))
    elif search == "each":
        yield from np.eye(space.dim)[:count]
    elif search == "cem":
        yield from _cross_entropy(space, count, rng, scores)
    elif search == "cma":
        yield from _cma_es(space, rng, scores)
    elif search in ("random", "regress"):
        while True:
            yield space.sample(1, rng)[0]


def _cross_entropy(
    space: SkillSpace, count: int, rng: np.random.Generator, scores: Callable[[], list[float]]
) -> Iterator[npt.NDArray[Any]]:
    """Four generations of a diagonal Gaussian that follows the best third, starting where the prior is."""
    mean, std = np.full(space.dim, 0.5), np.full(space.dim, 12**-0.5)
    size = max(count // 4, 3)
    while True:
        generation = np.clip(mean + std * rng.standard_normal((size, space.dim)), 0, 1)
        yield from generation
        order = np.argsort(scores()[-size:])[::-1]
        elite = generation[order[: max(size // 3, 2)]]
        mean, std = elite.mean(axis=0), elite.std(axis=0) + 0.02


def _cma_es(
    space: SkillSpace, rng: np.random.Generator, scores: Callable[[], list[float]]
) -> Iterator[npt.NDArray[Any]]:
    """Hansen's CMA-ES through the `cma` package, bounded to the unit cube, drawing from our generator."""
    import cma

    options = {
        "bounds": [0, 1],
        "popsize": 8,
        "verbose": -9,
        "randn": lambda *shape: rng.standard_normal(shape),
        "seed": np.nan,  # leave numpy's global generator alone
    }
    search = cma.CMAEvolutionStrategy(np.full(space.dim, 0.5), 0.25, options)
    while True:
        generation = search.ask()
        yield from generation
        costs = -np.array(scores()[-len(generation) :])
        worst = costs[np.isfinite(costs)].max(initial=0.0)
        search.tell(generation, np.where(np.isfinite(costs), costs, worst + 1).tolist())
