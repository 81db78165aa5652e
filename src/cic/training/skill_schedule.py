"""The skill that each environment follows: random skills that are redrawn, or given ones that are held."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.types import Array, Bools
from cic.learning.objectives import SkillSpace

HELD = -1  # the age of a skill that is held


class SkillSchedule:
    """The current skill of every environment, and for how many steps it has been followed."""

    def __init__(self, num_envs: int, dim: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self.current: Array = np.zeros((num_envs, dim), np.float32)
        self.age = np.full(num_envs, HELD)

    @property
    def started(self) -> Bools:
        """Which environments' random skills were drawn just now."""
        return np.asarray(self.age == 0)

    def hold(self, skill: Array) -> None:
        """Follow given skills from now on: (num_envs, dim), or (dim,) for all."""
        self.current = np.array(np.broadcast_to(skill, self.current.shape), np.float32)
        self.age[:] = HELD

    def start_random(self, space: SkillSpace) -> None:
        """Follow random skills from now on, unless they are followed already."""
        self._draw(self.age == HELD, space)

    def redraw(self, space: SkillSpace) -> None:
        """Redraw all random skills; skills that are held do not change."""
        self._draw(self.age != HELD, space)

    def advance(self, done: Bools, space: SkillSpace) -> None:
        """After a step: redraw random skills whose episode is over, or that were followed for `space.every` steps."""
        if self.age[0] == HELD:
            return
        self.age += 1
        self._draw(done if space.every is None else done | (self.age >= space.every), space)

    def _draw(self, expired: Bools, space: SkillSpace) -> None:
        if expired.any():
            self.current = self.current.copy()
            self.current[expired] = space.sample(int(expired.sum()), self.rng)
            self.age[expired] = 0

    def state(self) -> dict[str, npt.NDArray[Any]]:
        return {"skill": self.current, "skill_age": self.age}

    def restore(self, state: dict[str, npt.NDArray[Any]]) -> None:
        self.current, self.age = np.array(state["skill"]), np.array(state["skill_age"])
