"""Small environments with images, discrete actions and Dict observations, whose state can be saved."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space, Text

SIDE = 6


class ImageGrid(gymnasium.Env[Any, Any]):
    """A 6 × 6 grid with four moves, seen as an image, as a MiniGrid-like Dict, or as a place."""

    action_space = Discrete(4)

    def __init__(self, kind: str = "image") -> None:
        self.kind = kind
        image = Box(0, 255, (SIDE, SIDE, 3), np.uint8)
        spaces: dict[str, Space[Any]] = {
            "image": image,
            "first": Box(0, 255, (3, SIDE, SIDE), np.uint8),
            "gray": Box(0, 255, (SIDE, SIDE), np.uint8),
            "place": Discrete(SIDE * SIDE),
            "dict": Dict(
                {"image": image, "direction": Discrete(4), "speed": Box(-1, 1, (2,), np.float32), "mission": Text(9)}
            ),
        }
        self.observation_space = spaces[kind]
        self.at, self.last, self.steps = np.zeros(2, np.int64), 0, 0

    def _obs(self) -> Any:
        image = np.full((SIDE, SIDE, 3), 20, np.uint8)
        image[tuple(self.at)] = (255, 200, 0)
        return {
            "image": image,
            "first": image.transpose(2, 0, 1),
            "gray": image[..., 0],
            "place": np.int64(self.at[0] * SIDE + self.at[1]),
            "dict": {
                "image": image,
                "direction": np.int64(self.last),
                "speed": np.array([self.steps / 20, 0.5], np.float32),
                "mission": "go",
            },
        }[self.kind]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at, self.last, self.steps = self.np_random.integers(SIDE, size=2), 0, 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        move = [(1, 0), (0, 1), (-1, 0), (0, -1)][int(action)]
        self.at, self.last = np.clip(self.at + move, 0, SIDE - 1), int(action)
        self.steps += 1
        return self._obs(), float((self.at == 0).all()), False, self.steps >= 15, {}

    def get_state(self) -> dict[str, Any]:
        return {"at": self.at.copy(), "last": np.array(self.last), "steps": np.array(self.steps)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.at, self.last, self.steps = np.array(state["at"]), int(state["last"]), int(state["steps"])


KINDS = ("image", "first", "gray", "place", "dict")
