"""The physics of N parallel environments in a `mujoco.batch`: one call for all of them, on native threads.

A control step is that of dm_control: finish the started physics step, take the others, and start the next one. After
it, positions, velocities and their sensors belong to the new state.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch

from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs.bodies import Poses, shove
from cic.envs.suite.domain import Domain, Floats, Views

STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)  # positions, velocities, activations, controls, warm start, …
VELOCITY = int(mujoco.mjtStage.mjSTAGE_VEL)
UNSTABLE = slice(int(mujoco.mjtWarning.mjWARN_BADQPOS), int(mujoco.mjtWarning.mjWARN_BADQACC) + 1)


class Engine:
    """The physics of N parallel environments; the results do not depend on the number of threads."""

    obs: Floats
    """(N, obs): the current observations."""
    measured: Floats
    """(N, …): the arguments of the domain's rewards."""

    def __init__(self, domain: Domain, num_envs: int, threads: int) -> None:
        self._domain = domain
        self._batch = Batch(domain.stepped, num_envs, min(threads, num_envs), persistent=True)
        self._warnings = self._batch.warning[:, UNSTABLE, 1]  # how often
        self._controls = self._batch.bind("ctrl")
        self._views = _looked_at(domain, self._batch)
        self._scratch = mujoco.MjData(domain.model)  # in which episodes are reset
        self._scratch_views = _looked_at(domain, self._scratch)
        self.table = np.zeros((num_envs, sum(view[0].size for view in self._views)))
        self.obs, self.measured = np.split(self.table, [domain.info.obs], axis=1)
        parts = np.split(self.table, np.cumsum([view[0].size for view in self._views])[:-1], axis=1)
        self._columns = [part.reshape(view.shape) for part, view in zip(parts, self._views, strict=True)]

    def step(self, actions: Array) -> None:
        """Step all environments once, with actions in [-1, 1]."""
        self._controls[:] = self._domain.controls(actions)
        self._batch.step(None, self._domain.substeps, VELOCITY)
        if np.count_nonzero(self._warnings):  # MuJoCo resets what it cannot integrate
            index = int(np.argwhere(self._warnings)[0, 0])
            raise RuntimeError(f"{self._domain.info.name}: the simulation of environment {index} became unstable")
        self._look()

    def _look(self) -> None:
        for columns, view in zip(self._columns, self._views, strict=True):
            columns[...] = view
        self._domain.squash(self.obs)

    def begin(self, index: int, random: np.random.RandomState) -> None:
        """Reset one environment."""
        self._domain.begin(self._scratch, random)
        self._warnings[index] = 0
        mujoco.mj_getState(self._domain.model, self._scratch, self._batch.state[index], STATE)
        self._batch.forward(np.array([index]), VELOCITY)
        self.table[index] = np.concatenate(self._scratch_views, axis=None)
        self._domain.squash(self.obs[index : index + 1])

    def physics(self) -> Floats:
        """(N, nq + nv + na): positions, velocities and activations, as dm_control's `physics.get_state()`."""
        return np.concatenate([self._batch.qpos, self._batch.qvel, self._batch.act], axis=1)

    def set_physics(self, physics: Floats, actions: Array) -> None:
        """Set positions, velocities, activations and controls.

        The solver's warm start is not part of `physics`, so steps from here differ from the original ones by rounding.
        """
        model = self._domain.model
        parts = np.split(physics, np.cumsum([model.nq, model.nv]), axis=1)
        self._batch.qpos[:], self._batch.qvel[:], self._batch.act[:] = parts
        self._batch.qacc_warmstart[:] = 0
        self._controls[:] = self._domain.controls(actions)
        self._warnings[:] = 0
        self._batch.forward(None, VELOCITY)
        self._look()

    def state(self) -> dict[str, Floats]:
        """The physics and the latest sensor values: force and acceleration sensors lag one physics step behind."""
        return {"physics": self._batch.state.copy(), "table": self.table.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._warnings[:] = 0
        self._batch.state[:] = state["physics"]
        self._batch.forward(None, VELOCITY)
        if not np.array_equal(self._batch.state, state["physics"]):
            raise UserError("the state cannot be continued: its physics is unstable")
        self.table[:] = state["table"]

    def poses(self, index: int) -> Poses:
        """The poses of the geoms of one environment."""
        return Poses(self._batch.geom_xpos[index].copy(), self._batch.geom_xmat[index].reshape(-1, 3, 3).copy())

    def push(self, index: int, velocity: Floats) -> None:
        """Push the body of one environment. Observations change at the next step."""
        self._batch.qvel[index] += shove(self._domain.model, self.data(index), velocity)
        self._batch.forward(np.array([index]), VELOCITY)

    def data(self, index: int) -> Any:
        """One environment as `MjData`, to draw it."""
        return self._batch.get_data(index)


def _looked_at(domain: Domain, source: Any) -> Views:
    return *domain.observed(source), *domain.measured(source)
