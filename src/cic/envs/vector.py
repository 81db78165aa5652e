"""N copies of a suite domain, stepped together: MuJoCo is called directly, on all cores.

One control step is dm_control's: finish the step that is half done (`mj_step2`), take the others whole, and begin the
next one (`mj_step1`), after which positions, velocities and their sensors belong to the new state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from cic.envs import random_state
from cic.envs.base import Array, State, Step, VectorEnv
from cic.envs.crew import Crew, available_cores
from cic.envs.suite.domain import Domain
from cic.errors import UserError

PHYSICS = int(mujoco.mjtState.mjSTATE_INTEGRATION)  # positions, velocities, activations, controls, warm start, …


class SuiteEnv(VectorEnv):
    """A domain of `cic.envs.suite` as a vector environment."""

    def __init__(self, domain: Domain[Any], name: str, num_envs: int, seed: int, threads: int | None) -> None:
        info = domain.info
        super().__init__(name, info.obs, info.action, num_envs)
        self.domain, self.task, self.tasks = info.name, domain.task, info.tasks
        self.episode_length, self.coverage = info.episode_length, info.coverage
        self._length = info.episode_length
        self._left = 0  # steps until the first copy reaches its time limit
        self._suite = domain
        self._random = [np.random.RandomState(s) for s in self._seeds(seed)]
        self._data = [mujoco.MjData(domain.model) for _ in range(self.num_envs)]
        self._controls = [data.ctrl for data in self._data]
        self._views = [domain.view(data) for data in self._data]
        self._fields = self._gatherable()
        self._scale = _control_scale(domain.model)
        self._advance = _stepper(domain, self._data)
        self._crew = Crew(self._advance, self.num_envs, _thread_count(threads)) if self.num_envs > 1 else None
        self._renderer: Any = None

    def step(self, actions: Array) -> Step:
        controls: Any = self._check_actions(actions)
        if self._scale is not None:
            controls = self._scale[0] + self._scale[1] * np.add(controls, 1.0, dtype=np.float64)
        for control, values in zip(self._controls, controls, strict=True):
            control[:] = values
        if self._crew is None:
            self._advance(0)
        else:
            self._crew.run()
        fields = self._gather()
        rewards = {task: r.astype(np.float32) for task, r in self._suite.rewards(fields).items()}
        reward = rewards[self.task].copy() if self.task else np.zeros(self.num_envs, np.float32)
        terminated, truncated = np.zeros(self.num_envs, np.bool_), self._tick()
        return self._suite.observe(fields), reward, terminated, truncated, {"rewards": rewards}

    def _tick(self) -> npt.NDArray[np.bool_]:
        """Count the step; which copies reached the time limit with it."""
        self._steps += 1
        self._left -= 1
        if self._left > 0:
            return np.zeros(self.num_envs, np.bool_)
        self._over = self._steps >= self._length
        self._resume()
        return self._over.copy()

    def _resume(self) -> None:
        super()._resume()
        self._left = int(self._length - self._steps.max())

    def _gatherable(self) -> Any:
        """Arrays with a row per copy. For a single copy they are views of its data and are never filled."""
        if self.num_envs == 1:
            return type(self._views[0])(*(view[None] for view in self._views[0]))
        return type(self._views[0])(*(np.stack(views) for views in zip(*self._views, strict=True)))

    def _gather(self) -> Any:
        if self.num_envs > 1:
            for field, views in zip(self._fields, zip(*self._views, strict=True), strict=True):
                np.stack(views, out=field)
        return self._fields

    def _observe(self) -> Array:
        return self._suite.observe(self._gather())

    def _reseed(self, index: int, seed: int) -> None:
        self._random[index] = np.random.RandomState(seed)

    def _begin(self, index: int) -> None:
        self._suite.begin(self._data[index], self._random[index])

    def get_state(self) -> State:
        model = self._suite.model
        physics = np.empty((self.num_envs, mujoco.mj_stateSize(model, PHYSICS)))
        for row, data in zip(physics, self._data, strict=True):
            mujoco.mj_getState(model, data, row, PHYSICS)
        return {
            "physics": physics,
            # Force and acceleration sensors lag one physics step behind the state, so they cannot be recomputed.
            "sensors": np.stack([data.sensordata for data in self._data]),
            "steps": self._steps.copy(),
            "over": self._over.astype(np.int64),
            "random": np.stack([random_state.pack(r) for r in self._random]),
        }

    def set_state(self, state: State) -> None:
        self._check_open()
        self._check_state(state, self.get_state())
        for i, data in enumerate(self._data):
            mujoco.mj_setState(self._suite.model, data, np.asarray(state["physics"][i], np.float64), PHYSICS)
            mujoco.mj_step1(self._suite.model, data)
            data.sensordata[:] = state["sensors"][i]
            random_state.unpack(self._random[i], state["random"][i])
        self._steps[:] = state["steps"]
        self._over = state["over"].astype(np.bool_)
        self._resume()

    def render(self, index: int = 0, width: int = 320, height: int = 240) -> npt.NDArray[np.uint8]:  # type: ignore[override]
        from cic.envs.rendering import Renderer

        self._check_open()
        if self._renderer is None or self._renderer.size != (width, height):
            self._close_renderer()
            self._renderer = Renderer(self._suite.model, width, height)
        return self._renderer.picture(self._data[index])  # type: ignore[no-any-return]

    def _close_renderer(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def close_extras(self, **kwargs: Any) -> None:
        if self._crew is not None:
            self._crew.close()
        self._close_renderer()


def _stepper(domain: Domain[Any], copies: list[Any]) -> Callable[[int], None]:
    """The job of the crew. A closure, so that the threads keep the data alive but not the environment."""
    model, name, others = domain.model, domain.info.name, domain.substeps - 1
    least = 0.9 * domain.substeps * model.opt.timestep
    begin, whole, finish = mujoco.mj_step1, mujoco.mj_step, mujoco.mj_step2

    def advance(index: int) -> None:
        data = copies[index]
        before = data.time
        finish(model, data)
        if others:
            whole(model, data, others)
        begin(model, data)
        if data.time - before < least:  # MuJoCo resets, clock included, what it cannot integrate
            raise RuntimeError(f"{name}: the simulation of copy {index} became unstable")

    return advance


def _control_scale(model: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
    """From actions in [-1, 1] to the actuators' ranges: (low, half width), or None if they are [-1, 1] anyway."""
    low, high = model.actuator_ctrlrange[:, 0].copy(), model.actuator_ctrlrange[:, 1].copy()
    return None if (low == -1).all() and (high == 1).all() else (low, (high - low) / 2)


def _thread_count(threads: int | None) -> int:
    if threads is None:
        return available_cores()
    if threads < 1:
        raise UserError(f"threads must be at least 1, got {threads}")
    return threads
