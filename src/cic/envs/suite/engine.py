"""The physics of N copies. `advance` takes one control step in all of them and fills a table with a row per copy.

A control step is dm_control's: finish the physics step that is half done, take the others whole, and begin the next
one, after which positions, velocities and their sensors belong to the new state.

Many copies run in `mujoco.batch`, one call for all on native threads. On two cores with other work it was 1.4 to 1.6
times as fast as Python threads (MuJoCo releases the GIL); `mujoco.rollout` neither carries the solver's warm start from
call to call nor returns derived quantities. A single copy is read where it is, which is faster than through a batch.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import Any

import mujoco
import numpy as np
from mujoco import mj_step, mj_step1, mj_step2
from mujoco.batch import Batch

from cic.core.errors import UserError
from cic.envs.suite.domain import Array, Domain, Floats, Views
from cic.envs.suite.window import Window

STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)  # positions, velocities, activations, controls, warm start, …
VELOCITY = int(mujoco.mjtStage.mjSTAGE_VEL)
UNSTABLE = range(mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQACC + 1)


class Engine(ABC):
    """N copies of a domain's physics."""

    table: Floats
    """(N, obs + measured): the finished observations, then the arguments of the rewards."""

    @abstractmethod
    def control(self, actions: Array) -> bool:
        """What the actuators get in the next `advance`; False, and nothing done, if not all are numbers in [-1, 1]."""

    @abstractmethod
    def advance(self) -> None:
        """One control step in all copies."""

    @abstractmethod
    def begin(self, index: int, random: np.random.RandomState) -> None:
        """Start an episode in one copy and fill its row."""

    @abstractmethod
    def save(self) -> Floats:
        """The state of all copies, (N, size)."""

    @abstractmethod
    def load(self, states: Floats) -> None:
        """Continue from what `save` returned. Rows are not filled: acceleration sensors lag behind the state."""

    def check(self, states: Floats) -> None:
        """Whether the states are those that were loaded: MuJoCo resets what it cannot integrate."""
        if not np.array_equal(self.save(), states):
            raise UserError("the state cannot be continued: its physics is unstable")

    @abstractmethod
    def data(self, index: int) -> Any:
        """One copy as `MjData`, to draw it."""


class Single(Engine):
    """One copy. Its few controls are sooner looked at and written by Python than by numpy."""

    def __init__(self, domain: Domain) -> None:
        self._domain, self._model, self._others = domain, domain.stepped, domain.substeps - 1
        self._early = 1.5 * domain.substeps * domain.model.opt.timestep
        self._data = mujoco.MjData(domain.model)
        self._scale = None if domain.scale is None else [tuple(column) for column in domain.scale.T.tolist()]
        self._write = struct.Struct(f"{domain.info.action}d").pack_into
        self._controls = memoryview(self._data.ctrl)
        window = Window(_looked_at(domain, self._data), 1)
        self._look, self.table = window.look, window.table
        self._squashed = domain.squashed(self.table)

    def control(self, actions: Array) -> bool:
        (values,) = actions.tolist()
        for value in values:
            if not -1.0 <= value <= 1.0:
                return False
        if self._scale:
            values = [low + half * (value + 1.0) for value, (low, half) in zip(values, self._scale, strict=True)]
        self._write(self._controls, 0, *values)
        return True

    def advance(self) -> None:
        model, data = self._model, self._data
        mj_step2(model, data)
        if self._others:
            mj_step(model, data, self._others)
        mj_step1(model, data)
        # MuJoCo resets what it cannot integrate, controls and clock too, so its warnings rarely need a look.
        if not self._controls[0] and data.time < self._early and any(data.warning[kind].number for kind in UNSTABLE):
            raise _unstable(self._domain, 0)
        self._fill()

    def _fill(self) -> None:
        self._look()
        for squash, part in self._squashed:
            squash(part, part)

    def begin(self, index: int, random: np.random.RandomState) -> None:
        self._domain.begin(self._data, random)
        self._fill()

    def save(self) -> Floats:
        state = np.empty((1, mujoco.mj_stateSize(self._model, STATE)))
        mujoco.mj_getState(self._model, self._data, state[0], STATE)
        return state

    def load(self, states: Floats) -> None:
        mujoco.mj_resetData(self._model, self._data)
        mujoco.mj_setState(self._model, self._data, states[0], STATE)
        mj_step1(self._model, self._data)
        self.check(states)

    def data(self, index: int) -> Any:
        return self._data


class Many(Engine):
    """Several copies on several threads; the results do not depend on how many."""

    def __init__(self, domain: Domain, num_envs: int, threads: int) -> None:
        self._domain = domain
        self._batch = Batch(domain.stepped, num_envs, min(threads, num_envs), persistent=True)
        self._scratch = mujoco.MjData(domain.model)  # where episodes begin
        self._scratch_views = _looked_at(domain, self._scratch)
        self._scale, self._controls = domain.scale, self._batch.bind("ctrl")
        window = Window(_looked_at(domain, self._batch), num_envs)
        self._look, self.table = window.look, window.table
        self._squashed = domain.squashed(self.table)
        self._calm = bytes(self._batch.warning.nbytes)
        self._warnings = self._batch.warning[:, UNSTABLE.start : UNSTABLE.stop, 1]  # how often

    def control(self, actions: Array) -> bool:
        if not np.maximum.reduce(np.abs(actions), axis=None) <= 1.0:  # or NaN
            return False
        controls = self._controls
        controls[:] = actions
        if self._scale is not None:
            low, half = self._scale
            controls += 1.0
            controls *= half
            controls += low
        return True

    def advance(self) -> None:
        self._batch.step(None, self._domain.substeps, VELOCITY)
        if self._batch.warning.tobytes() != self._calm and self._warnings.any():  # the quicker question first
            raise _unstable(self._domain, int(np.argwhere(self._warnings)[0, 0]))
        self._look()
        for squash, part in self._squashed:
            squash(part, part)

    def begin(self, index: int, random: np.random.RandomState) -> None:
        self._domain.begin(self._scratch, random)
        self._warnings[index] = 0
        mujoco.mj_getState(self._domain.model, self._scratch, self._batch.state[index], STATE)
        self._batch.forward(np.array([index]), VELOCITY)
        self.table[index] = np.concatenate(self._scratch_views, axis=None)
        for squash, part in self._domain.squashed(self.table[index : index + 1]):
            squash(part, part)

    def save(self) -> Floats:
        return self._batch.state.copy()  # type: ignore[no-any-return]

    def load(self, states: Floats) -> None:
        self._warnings[:] = 0
        self._batch.state[:] = states
        self._batch.forward(None, VELOCITY)
        self.check(states)

    def data(self, index: int) -> Any:
        return self._batch.get_data(index)


def _looked_at(domain: Domain, source: Any) -> Views:
    return *domain.observed(source), *domain.measured(source)


def _unstable(domain: Domain, index: int) -> RuntimeError:
    return RuntimeError(f"{domain.info.name}: the simulation of copy {index} became unstable")
