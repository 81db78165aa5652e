"""The physics of N copies. `advance` takes one control step in all of them and fills a table with a row per copy.

A control step is dm_control's: finish the physics step that is half done, take the others whole, and begin the next
one, after which positions, velocities and their sensors belong to the new state.

Many copies run in `mujoco.batch`, one call for all on native threads. On two cores with other work it was 1.4 to 1.6
times as fast as Python threads (MuJoCo releases the GIL); `mujoco.rollout` neither carries the solver's warm start from
call to call nor returns derived quantities. A single copy is read where it is, which is faster than through a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import mujoco
import numpy as np
from mujoco import mj_step, mj_step1, mj_step2
from mujoco.batch import Batch

from cic.envs.suite.domain import Domain, Floats, Views
from cic.envs.suite.window import Window
from cic.errors import UserError

STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)  # positions, velocities, activations, controls, warm start, …
VELOCITY = int(mujoco.mjtStage.mjSTAGE_VEL)
UNSTABLE = range(mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQACC + 1)


class Engine(ABC):
    """N copies of a domain's physics."""

    table: Floats
    """(N, obs + measured): the finished observations, then the arguments of the rewards."""
    controls: Floats
    """(N, action), contiguous: what the actuators get in the next `advance`."""

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
    """One copy."""

    def __init__(self, domain: Domain) -> None:
        self._domain, self._model, self._others = domain, domain.model, domain.substeps - 1
        self._early = 1.5 * domain.substeps * domain.model.opt.timestep
        self._data = mujoco.MjData(domain.model)
        self.controls = self._data.ctrl[None]
        window = Window(_looked_at(domain, self._data))
        self._take, self._index = window.block.take, window.index
        self.table = np.zeros((1, len(window.index)))
        self._row = self.table[0]
        self._squashed = domain.squashed(self.table)

    def advance(self) -> None:
        model, data = self._model, self._data
        mj_step2(model, data)
        if self._others:
            mj_step(model, data, self._others)
        mj_step1(model, data)
        # MuJoCo resets what it cannot integrate, the clock too, so its warnings need a look only early in an episode.
        if data.time < self._early and any(data.warning[kind].number for kind in UNSTABLE):
            raise _unstable(self._domain, 0)
        self._fill()

    def _fill(self) -> None:
        self._take(self._index, None, self._row, "clip")  # with "clip" numpy needs no copy for `out`
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
        self._batch = Batch(domain.model, num_envs, min(threads, num_envs), persistent=True)
        self._scratch = mujoco.MjData(domain.model)  # where episodes begin
        self._scratch_views = _looked_at(domain, self._scratch)
        self._views = tuple(_flat_if_possible(view) for view in _looked_at(domain, self._batch))
        self.controls = np.zeros((num_envs, domain.info.action))
        self._control_inputs = self._batch.bind("ctrl")
        self.table = np.zeros((num_envs, sum(view.size for view in self._scratch_views)))
        self._squashed = domain.squashed(self.table)
        self._warnings = self._batch.warning[:, UNSTABLE.start : UNSTABLE.stop, 1]  # how often

    def advance(self) -> None:
        self._control_inputs[:] = self.controls
        self._batch.step(None, self._domain.substeps, VELOCITY)
        if self._warnings.any():
            raise _unstable(self._domain, int(np.argwhere(self._warnings)[0, 0]))
        flat = [view if view.ndim == 2 else view.reshape(len(view), -1) for view in self._views]
        np.concatenate(flat, axis=1, out=self.table)
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


def _flat_if_possible(view: Floats) -> Floats:
    """(N, entries) if that is a view of the same memory, else as it is."""
    flat = view.reshape(len(view), -1)
    return flat if np.shares_memory(flat, view) else view


def _unstable(domain: Domain, index: int) -> RuntimeError:
    return RuntimeError(f"{domain.info.name}: the simulation of copy {index} became unstable")
