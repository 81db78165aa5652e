"""A domain of the suite as a vector environment."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs import random_state
from cic.envs.base import State, Step, VectorEnv
from cic.envs.suite.domain import Domain
from cic.envs.suite.engine import Engine, Many, Single
from cic.envs.suite.readout import reader

FLOAT32 = np.dtype(np.float32)


class SuiteEnv(VectorEnv):
    """N copies of one domain, on all cores."""

    def __init__(self, domain: Domain, name: str, num_envs: int, seed: int, threads: int | None) -> None:
        info = domain.info
        super().__init__(name, info.obs, info.action, num_envs)
        self.domain, self.task, self.tasks = info.name, domain.task, info.tasks
        self.episode_length, self.coverage = info.episode_length, info.coverage
        self._length = info.episode_length
        self._model = domain.model
        self._random = [np.random.RandomState(s) for s in self._seeds(seed)]
        threads = _thread_count(threads)
        self._engine: Engine = Single(domain) if num_envs == 1 else Many(domain, self.num_envs, threads)
        self._control, self._advance = self._engine.control, self._engine.advance
        self._read = reader(domain, self._engine.table)
        self._renderer: Any = None

    def step(self, actions: Array) -> Step:
        # The question that good actions pass in a hurry.
        if (
            self._blocked
            or type(actions) is not np.ndarray
            or actions.dtype is not FLOAT32
            or actions.shape != self._shape
        ):
            actions = self._check_actions(actions)
        if not self._control(actions):
            self._check_finite(actions)
            self._control(np.clip(actions, -1.0, 1.0))
        self._advance()
        page = self._read()
        self._steps += 1
        over = self._steps >= self._length
        if over.any():
            self._over = over
            self._resume()
            page[3][:] = over
        return page

    def _observe(self) -> Array:
        return self._read()[0]

    def _reseed(self, index: int, seed: int) -> None:
        self._random[index] = np.random.RandomState(seed)

    def _begin(self, index: int) -> None:
        self._engine.begin(index, self._random[index])

    def get_state(self) -> State:
        return {
            "physics": self._engine.save(),
            # Force and acceleration sensors lag one physics step behind the state, so they cannot be recomputed.
            "table": self._engine.table.copy(),
            "steps": self._steps.copy(),
            "over": self._over.astype(np.int64),
            "random": np.stack([random_state.pack(r) for r in self._random]),
        }

    def set_state(self, state: State) -> None:
        self._check_open()
        self._check_state(state, self.get_state())
        self._engine.load(state["physics"])
        self._engine.table[:] = state["table"]
        for random, packed in zip(self._random, state["random"], strict=True):
            random_state.unpack(random, packed)
        self._steps[:] = state["steps"]
        self._over = state["over"].astype(np.bool_)
        self._resume()

    def render(self, index: int = 0, width: int = 320, height: int = 240) -> npt.NDArray[np.uint8]:  # type: ignore[override]
        from cic.envs.rendering import Renderer

        self._check_open()
        if self._renderer is None or self._renderer.size != (width, height):
            self._close_renderer()
            self._renderer = Renderer(self._model, width, height)
        return self._renderer.picture(self._engine.data(index))  # type: ignore[no-any-return]

    def _close_renderer(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def close_extras(self, **kwargs: Any) -> None:
        self._close_renderer()
        for name in ("_engine", "_control", "_advance"):  # and with them the threads
            self.__dict__.pop(name, None)


def _thread_count(threads: int | None) -> int:
    if threads is None:  # all cores that this process may use
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not isinstance(threads, int) or threads < 1:
        raise UserError(f"threads must be a whole number of at least 1, got {threads!r}")
    return threads
