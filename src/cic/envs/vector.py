"""N copies of a suite domain, stepped together: MuJoCo is called directly, on all cores.

One control step is dm_control's: finish the step that is half done (`mj_step2`), take the others whole, and begin the
next one (`mj_step1`), after which positions, velocities and their sensors belong to the new state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from cic.envs import random_state
from cic.envs.base import Array, State, Step, VectorEnv
from cic.envs.crew import Crew, available_cores
from cic.envs.suite.domain import Domain, Floats
from cic.envs.suite.readout import Readout
from cic.errors import UserError

PHYSICS = int(mujoco.mjtState.mjSTATE_INTEGRATION)  # positions, velocities, activations, controls, warm start, …


class SuiteEnv(VectorEnv):
    """A domain of `cic.envs.suite` as a vector environment."""

    def __init__(self, domain: Domain, name: str, num_envs: int, seed: int, threads: int | None) -> None:
        info = domain.info
        super().__init__(name, info.obs, info.action, num_envs)
        self.domain, self.task, self.tasks = info.name, domain.task, info.tasks
        self.episode_length, self.coverage = info.episode_length, info.coverage
        self._length = info.episode_length
        self._clock, self._alarm = 0, 0  # steps taken so far, and at which count a copy first reaches its time limit
        self._suite = domain
        self._random = [np.random.RandomState(s) for s in self._seeds(seed)]
        self._data = [mujoco.MjData(domain.model) for _ in range(self.num_envs)]
        self._readout = Readout(domain, self._data)
        self._controls = np.zeros(self._shape) if self.num_envs > 1 else self._data[0].ctrl[None]
        self._flat_controls = self._controls.reshape(-1)
        self._scale = _control_scale(domain.model, self._shape)
        self._times = [0.0] * self.num_envs
        self._advance = _stepper(domain, self._data, self._times, self._controls, self._readout)
        self._crew = Crew(self._advance, self.num_envs, _thread_count(threads)) if self.num_envs > 1 else None
        self._renderer: Any = None

    def step(self, actions: Array) -> Step:
        controls, flat = self._controls, self._flat_controls
        controls[:] = actions = self._check_actions(actions)
        if not math.isfinite(flat.dot(flat)):
            self._check_finite(actions)
        if self._scale is not None:
            controls += self._scale[0]
            controls *= self._scale[1]
            controls += self._scale[2]
        if self._crew is None:
            self._advance(0)
        else:
            self._crew.run()
        obs, reward, terminated, truncated, rewards = self._readout()
        if self.task is not None:
            reward[:] = rewards[self.task]
        self._clock += 1
        if self._clock >= self._alarm:
            truncated[:] = self._end()
        return obs, reward, terminated, truncated, {"rewards": rewards}

    def _end(self) -> npt.NDArray[np.bool_]:
        """Which copies have reached the time limit."""
        self._settle_clock()
        self._over = self._steps >= self._length
        self._resume()
        return self._over

    def _settle_clock(self) -> None:
        """Move the steps since the last reset from the common clock to the copies' counters."""
        self._steps[~self._over] += self._clock
        self._clock = 0

    def _resume(self) -> None:
        super()._resume()
        self._alarm = int(self._length - self._steps.max())

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        self._settle_clock()
        return super().reset(seed=seed, options=options)

    def _observe(self) -> Array:
        self._readout.refresh()
        return self._readout()[0]

    def _reseed(self, index: int, seed: int) -> None:
        self._random[index] = np.random.RandomState(seed)

    def _begin(self, index: int) -> None:
        self._suite.begin(self._data[index], self._random[index])
        self._times[index] = self._data[index].time

    def get_state(self) -> State:
        self._settle_clock()
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
            self._times[i] = data.time
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


def _stepper(
    domain: Domain, copies: list[Any], times: list[float], controls: Floats, readout: Readout
) -> Callable[[int], None]:
    """The job of the crew. A closure, so that the threads keep the data alive but not the environment."""
    model, name, others = domain.model, domain.info.name, domain.substeps - 1
    least = 0.9 * domain.substeps * model.opt.timestep
    lines = list(zip(copies, (data.ctrl for data in copies), controls, readout.windows, readout.table, strict=True))
    begin, whole, finish = mujoco.mj_step1, mujoco.mj_step, mujoco.mj_step2
    alone = len(copies) == 1  # then `controls` are the copy's own

    def advance(i: int) -> None:
        data, control, values, window, row = lines[i]
        if not alone:
            control[:] = values
        finish(model, data)
        if others:
            whole(model, data, others)
        begin(model, data)
        time = data.time
        if time - times[i] < least:  # MuJoCo resets, clock included, what it cannot integrate
            raise RuntimeError(f"{name}: the simulation of copy {i} became unstable")
        times[i] = time
        window.read(row)

    return advance


def _control_scale(model: Any, shape: tuple[int, int]) -> tuple[Floats, Floats, Floats] | None:
    """(1, half width, low) take actions in [-1, 1] to the actuators' ranges; None if those are [-1, 1] anyway.

    Whole arrays, and dm_control's formula `low + half * (action + 1)` rather than one operation less: the same bits.
    """
    low, high = model.actuator_ctrlrange.T
    if (low == -1).all() and (high == 1).all():
        return None
    return np.ones(shape), np.broadcast_to((high - low) / 2, shape).copy(), np.broadcast_to(low, shape).copy()


def _thread_count(threads: int | None) -> int:
    if threads is None:
        return available_cores()
    if threads < 1:
        raise UserError(f"threads must be at least 1, got {threads}")
    return threads
