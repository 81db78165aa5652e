"""A grid of 10 × 10 cells with MiniGrid's moves (turn left, turn right, forward); an episode has 24 steps."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

import cic

SIZE, LENGTH = 10, 24
HEADINGS = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])


class Grid(gymnasium.Env[Any, Any]):
    """The observation is the position, scaled to −1 to 1, and the heading. An episode starts in a corner."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.heading = np.zeros(2, np.int64), 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == 2:
            self.place = np.clip(self.place + HEADINGS[self.heading], 0, SIZE - 1)
        else:
            self.heading = (self.heading + (1 if action else -1)) % len(HEADINGS)
        return self._observation(), 0.0, False, False, {}

    def _observation(self) -> Any:
        return np.concatenate([2 * self.place / (SIZE - 1) - 1, HEADINGS[self.heading]]).astype(np.float32)


def cells(observations: Any) -> int:
    """How many cells a list of paths of observations visits."""
    places = np.rint((np.concatenate(observations)[:, :2] + 1) / 2 * (SIZE - 1)).astype(np.int64)
    return len(np.unique(places, axis=0))


cic.register_env("grid10", lambda: gymnasium.wrappers.TimeLimit(Grid(), LENGTH))
