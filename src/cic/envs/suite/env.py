"""A domain of the suite as a vector environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs import random_state
from cic.envs.base import State, StepArrays, VectorEnv
from cic.envs.bodies import Poses
from cic.envs.suite.domain import Domain
from cic.envs.suite.engine import Engine

if TYPE_CHECKING:
    from cic.envs.rendering import Renderer


class SuiteEnv(VectorEnv):
    """Parallel environments of one domain, on all cores."""

    draws_states = True

    def __init__(self, domain: Domain, name: str, num_envs: int, seed: int, threads: int | None) -> None:
        info = domain.info
        super().__init__(name, info.obs, info.action, num_envs)
        self.domain, self.task, self.tasks = info.name, domain.task, info.tasks
        self.episode_length, self.coverage = info.episode_length, info.coverage
        self.quantities = info.quantities
        self.drawing, self.ghosts = domain.drawing, domain.ghosts
        self._suite, self._length = domain, info.episode_length
        self._random = [np.random.RandomState(s) for s in self._seeds(seed)]
        self._engine = Engine(domain, self.num_envs, _thread_count(threads))
        self._opened: Renderer | None = None
        self._drawn_at: tuple[int, int, bool] | None = None

    def step(self, actions: Array) -> StepArrays:
        actions = self._check_actions(actions)
        self._engine.step(actions.clip(-1.0, 1.0))
        self._steps += 1
        truncated = self._steps >= self._length
        self._over = truncated.copy()
        rewards = self.task_rewards()
        reward = rewards[self.task].copy() if self.task else np.zeros(self.num_envs, np.float32)
        terminated = np.zeros(self.num_envs, np.bool_)
        return StepArrays(self._observe(), reward, terminated, truncated, {"rewards": rewards})

    def task_rewards(self) -> dict[str, Array]:
        by_env = [self._suite.rewards(*measured) for measured in self._engine.measured.tolist()]
        return dict(zip(self.tasks, np.array(by_env, np.float32).T.copy(), strict=True))

    def _observe(self) -> Array:
        return self._engine.obs.astype(np.float32)

    def _reseed(self, index: int, seed: int) -> None:
        self._random[index] = np.random.RandomState(seed)

    def _begin(self, index: int) -> None:
        self._engine.begin(index, self._random[index])

    def physics(self) -> npt.NDArray[np.float64]:
        return self._engine.physics()

    def set_physics(self, physics: npt.NDArray[np.float64], actions: Array | None = None) -> None:
        self._check_open()
        self._check_state({"physics": physics}, {"physics": self.physics()})
        applied = np.zeros(self._shape, np.float32) if actions is None else self._numbers(actions)
        self._engine.set_physics(physics, applied.clip(-1.0, 1.0))
        self._steps[:], self._over[:] = 0, False

    @property
    def model(self) -> Any:
        return self._suite.model

    @property
    def step_seconds(self) -> float:
        return float(self._suite.model.opt.timestep * self._suite.substeps)

    def poses(self, index: int = 0) -> Poses:
        self._check_open()
        return self._engine.poses(index)

    def push(self, velocity: Any, index: int = 0) -> None:
        self._check_open()
        self._engine.push(index, np.asarray(velocity, np.float64))

    def state(self) -> State:
        return {
            **self._engine.state(),
            "steps": self._steps.copy(),
            "over": self._over.astype(np.int64),
            "random": np.stack([random_state.pack(r) for r in self._random]),
        }

    def restore(self, state: State) -> None:
        self._check_open()
        self._check_state(state, self.state())
        self._engine.restore(state)
        for random, packed in zip(self._random, state["random"], strict=True):
            random_state.unpack(random, packed)
        self._steps[:] = state["steps"]
        self._over[:] = state["over"].astype(np.bool_)

    def render(self, index: int = 0, width: int = 320, height: int = 240) -> npt.NDArray[np.uint8]:  # type: ignore[override]
        self._check_open()
        return self._renderer(width, height, plain=False).picture(self._engine.physics()[index])

    def draw(
        self, states: Sequence[npt.NDArray[np.float64]], width: int, height: int, *, plain: bool = False
    ) -> npt.NDArray[np.uint8]:
        self._check_open()
        return self._renderer(width, height, plain=plain).picture(states[-1], ghosts=states[:-1])

    def _renderer(self, width: int, height: int, *, plain: bool) -> Renderer:
        """The renderer of this size. Only one renderer is kept."""
        from cic.envs.rendering import Renderer

        if (width, height, plain) != self._drawn_at:
            self._close_renderer()
            self._opened = Renderer(self._suite.model, width, height, self._suite.camera, plain=plain)
            self._drawn_at = (width, height, plain)
        assert self._opened is not None
        return self._opened

    def _close_renderer(self) -> None:
        self._drawn_at = None
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def close_extras(self, **kwargs: Any) -> None:
        self._close_renderer()
        del self._engine  # and with it the threads


def _thread_count(threads: int | None) -> int:
    if threads is None:  # all cores that this process may use
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not isinstance(threads, int) or threads < 1:
        raise UserError(f"threads must be a whole number of at least 1, got {threads!r}")
    return threads
