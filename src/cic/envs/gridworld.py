"""A 10×10 gridworld with four moves, at a million steps per second. Its exploration is easy to plot and to count.

States are discrete and actions continuous, so that the agents of the other domains run on it unchanged. The larger of
the two action entries selects the axis (x if both are equal), its sign the direction (zero counts as positive). The
observation is the cell, scaled to [-1, 1]. Episodes start in one of the four cells in the middle and last 50 steps;
a task rewards 1 for every step that ends in its corner. Moves into a wall have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.types import Array
from cic.envs import random_state
from cic.envs.base import State, StepArrays, VectorEnv
from cic.envs.catalogue import DOMAINS, Quantity, View

SIZE = 10
_PLACES = [Quantity(name, "cells", (entry,), 0.0, SIZE - 1.0, physics=True) for entry, name in enumerate("xy")]
CORNER_CELLS = {
    "reach_top_left": (0, SIZE - 1),
    "reach_top_right": (SIZE - 1, SIZE - 1),
    "reach_bottom_left": (0, 0),
    "reach_bottom_right": (SIZE - 1, 0),
}


class Gridworld(VectorEnv):
    """N parallel gridworlds."""

    draws_states = True

    def __init__(self, name: str, task: str | None, num_envs: int, seed: int) -> None:
        info = DOMAINS["gridworld"]
        super().__init__(name, info.obs, info.action, num_envs, -1.0, 1.0)
        self.domain, self.task, self.tasks = info.name, task, info.tasks
        self.episode_length, self.coverage = info.episode_length, info.coverage
        self.quantities = info.quantities
        self.drawing = (View(_PLACES[1], _PLACES[0], "the board"),)
        self._cells = np.zeros((self.num_envs, 2), np.int64)
        self._random = [np.random.RandomState(s) for s in self._seeds(seed)]

    def step(self, actions: Array) -> StepArrays:
        actions = self._check_actions(actions)
        axis = (np.abs(actions[:, 1]) > np.abs(actions[:, 0])).astype(np.int64)
        rows = np.arange(self.num_envs)
        self._cells[rows, axis] += np.where(actions[rows, axis] >= 0, 1, -1)
        np.clip(self._cells, 0, SIZE - 1, out=self._cells)
        self._steps += 1
        truncated = self._steps >= DOMAINS["gridworld"].episode_length
        self._over = truncated.copy()
        rewards = self.task_rewards()
        reward = rewards[self.task].copy() if self.task else np.zeros(self.num_envs, np.float32)
        terminated = np.zeros(self.num_envs, np.bool_)
        return StepArrays(self._observe(), reward, terminated, truncated, {"rewards": rewards})

    def task_rewards(self) -> dict[str, Array]:
        return {task: (self._cells == cell).all(axis=1).astype(np.float32) for task, cell in CORNER_CELLS.items()}

    def _observe(self) -> Array:
        return (self._cells * (2.0 / (SIZE - 1)) - 1.0).astype(np.float32)

    def _reseed(self, index: int, seed: int) -> None:
        self._random[index] = np.random.RandomState(seed)

    def _begin(self, index: int) -> None:
        self._cells[index] = SIZE // 2 - self._random[index].randint(0, 2, size=2)

    def physics(self) -> npt.NDArray[np.float64]:
        """The cells."""
        return self._cells.astype(np.float64)

    def set_physics(self, physics: npt.NDArray[np.float64], actions: Array | None = None) -> None:
        self._check_state({"physics": physics}, {"physics": self.physics()})
        self._cells[:] = physics
        self._steps[:], self._over[:] = 0, False

    def state(self) -> State:
        return {
            "cells": self._cells.copy(),
            "steps": self._steps.copy(),
            "over": self._over.astype(np.int64),
            "random": np.stack([random_state.pack(r) for r in self._random]),
        }

    def restore(self, state: State) -> None:
        self._check_state(state, self.state())
        self._cells[:] = state["cells"]
        self._steps[:] = state["steps"]
        self._over[:] = state["over"].astype(np.bool_)
        for random, packed in zip(self._random, state["random"], strict=True):
            random_state.unpack(random, packed)

    def render(self, index: int = 0, width: int = 320, height: int = 240) -> npt.NDArray[np.uint8]:  # type: ignore[override]
        self._check_open()
        return _board([self._cells[index]], width, height)

    def draw(
        self, states: Sequence[npt.NDArray[np.float64]], width: int, height: int, *, plain: bool = False
    ) -> npt.NDArray[np.uint8]:
        return _board(states, width, height)


def _board(cells: Sequence[npt.NDArray[Any]], width: int, height: int) -> npt.NDArray[np.uint8]:
    """Draw the last cell in blue and earlier cells paler."""
    rows = SIZE - 1 - np.arange(height) * SIZE // height  # y points up
    columns = np.arange(width) * SIZE // width
    board = np.where(np.add.outer(rows, columns)[..., None] % 2, 235, 215).repeat(3, axis=2).astype(np.uint8)
    for place, (x, y) in enumerate(cells, 1):
        here = np.ix_(rows == y, columns == x)
        strength = place / len(cells)
        board[here] = (strength * np.array((40, 90, 200)) + (1 - strength) * board[here]).astype(np.uint8)
    return board


def create(name: str, task: str | None, num_envs: int, seed: int, threads: int | None) -> Gridworld:
    """The gridworld of `cic.envs.make`; one thread is enough for it."""
    return Gridworld(name, task, num_envs, seed)
