"""Which skill acts: drawn at random in pre-training, searched for in finetuning (`cic.training.searches`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.config import require
from cic.core.types import Array, Bools
from cic.learning.objectives import SkillSpace


@dataclass(frozen=True)
class SearchConfig:
    search: str = "auto"
    """How the skill is found: grid, random, cem, cma, halving, surrogate, library, each (one-hot skills), regress
    (methods that infer it), fixed (none, as released); paper is what the paper does for the method (grid for CIC); auto
    is library where the pre-training left one that shows its skills from several starts, else paper."""
    search_steps: int | None = None
    """Steps of the search: as many as the warm-up, or more. The updates that come due beyond the warm-up are made when
    the skill is chosen, on the critic alone, so that it knows the policy before it moves it."""
    trial_steps: int = 100
    """Steps that each candidate gets; halving begins with half of them."""
    trial_skip: int = 0
    """First steps of each trial that do not count, so that a candidate is scored by where it gets to and not by where
    the one before it stopped."""
    finalists: int = 2
    """Skills of the library that are tried for real, one after another, in the later part of that search."""
    search_value: float = 0.5
    """The constant of every coordinate for `fixed`."""

    def __post_init__(self) -> None:
        steps = self.search_steps
        require(steps is None or steps >= 0, f"search_steps must not be negative, not {steps}")
        require(self.trial_skip >= 0, f"trial_skip must not be negative, not {self.trial_skip}")
        require(self.finalists >= 1, f"finalists must be at least 1, not {self.finalists}")
        require(self.trial_steps >= 1, f"trial_steps must be at least 1, not {self.trial_steps}")


class RandomSkills:
    """Pre-training: each copy draws anew every so many steps and at each reset."""

    def __init__(self, space: SkillSpace, num_envs: int, rng: np.random.Generator) -> None:
        self.space, self.rng = space, rng
        self.current = space.sample(num_envs, rng)
        self.age = np.zeros(num_envs, np.int64)

    @property
    def begins(self) -> Bools:
        """Which copies' skills were just drawn."""
        return np.asarray(self.age == 0)

    def advance(self, done: Bools, every: int | None) -> None:
        """After a step: copies that are done, and those whose skill is `every` steps old, draw anew."""
        self.age += 1
        expired = done if every is None else done | (self.age >= every)
        if expired.any():
            self.current = self.current.copy()
            self.current[expired] = self.space.sample(int(expired.sum()), self.rng)
            self.age[expired] = 0

    def again(self) -> None:
        """All copies begin anew with the skills that they have."""
        self.age[:] = 0

    def state(self) -> dict[str, npt.NDArray[Any]]:
        return {"current": self.current, "age": self.age}

    def restore(self, state: dict[str, npt.NDArray[Any]]) -> None:
        self.current, self.age = np.array(state["current"]), np.array(state["age"])


def default_skill(space: SkillSpace, value: float = 0.5) -> Array:
    """The skill when none is searched for: the constant `value`, the first corner, the first axis."""
    if space.kind == "box":
        return np.full(space.dim, value, np.float32)
    skill = np.zeros(space.dim, np.float32)
    skill[:1] = space.radius
    return skill
