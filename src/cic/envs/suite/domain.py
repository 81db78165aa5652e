"""The base class of domains: the MuJoCo model, the observation, and the rewards as functions of physical quantities.

A domain names views of the physics: those that make up the observation, and the single numbers on which the rewards
depend. The source is one environment's `MjData`, or a `mujoco.batch.Batch` of several, whose arrays have one more axis
in front, so views are taken with `[..., i]`. The order of calls at a reset is that of dm_control, so
that the numbers are the same.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import mujoco
import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.envs.catalogue import DomainInfo, View

Floats = npt.NDArray[np.float64]
Views = tuple[Floats, ...]


class Domain(ABC):
    """One body in its world."""

    info: ClassVar[DomainInfo]
    substeps: ClassVar[int]
    """Physics steps in one control step."""
    drawing: ClassVar[tuple[View, ...]]
    """The plots of an episode."""
    ghosts: ClassVar[tuple[int, float]] = VectorEnv.ghosts
    """See `Env.ghosts`: use more for a small body and a fixed camera."""
    camera: ClassVar[str | None] = None
    """The camera of the model for images; by default the first."""

    def __init__(self, task: str | None) -> None:
        self.task = task
        self.model = copy.copy(self.compiled())
        self.stepped = without_islands(self.model)
        self.passive = passive(self.model)
        self._low, high = self.model.actuator_ctrlrange.T
        self._half = (high - self._low) / 2
        self._stretched = bool((self._low != -1.0).any() or (high != 1.0).any())

    @classmethod
    @functools.cache
    def compiled(cls) -> Any:
        """The `MjModel`, compiled once in this process."""
        return cls.build()

    @classmethod
    @abstractmethod
    def build(cls) -> Any:
        """Compile dm_control's model."""

    @abstractmethod
    def observed(self, source: Any) -> Views:
        """Views whose entries, in order, are the observation of one environment."""

    def squash(self, obs: Floats) -> None:  # noqa: B027 (most domains have nothing to squash)
        """Apply dm_control's functions to parts of the observations (N, obs), in place."""

    @abstractmethod
    def measured(self, source: Any) -> Views:
        """Views whose entries, in order, are the arguments of `rewards`."""

    @abstractmethod
    def rewards(self, *measured: Any) -> tuple[float, ...]:
        """The rewards of `info.tasks`, in order, for one environment."""

    @abstractmethod
    def place(self, data: Any, random: np.random.RandomState) -> None:
        """Draw an initial state, in the order of dm_control's task, so that the same seed gives the same state."""

    def begin(self, data: Any, random: np.random.RandomState) -> None:
        """Start an episode. The forward pass before `place` is necessary: it changes the solver's warm start."""
        mujoco.mj_resetData(self.model, data)
        mujoco.mj_forward(self.passive, data)
        self.place(data, random)
        mujoco.mj_forward(self.passive, data)

    def controls(self, actions: Array) -> Floats:
        """Scale actions from [-1, 1] to the actuators' ranges, with the same operations as dm_control."""
        exact = actions.astype(np.float64)
        return self._low + self._half * (exact + 1.0) if self._stretched else exact

    def id(self, kind: str, name: str) -> int:
        """The index of a named body, geom, …"""
        return int(mujoco.mj_name2id(self.model, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), name))

    def sensor(self, source: Any, first: str, last: str | None = None) -> Floats:
        """A view of the readings of one sensor, or of all from `first` to `last`."""
        begin, end = self.id("sensor", first), self.id("sensor", last or first)
        stop = int(self.model.sensor_adr[end] + self.model.sensor_dim[end])
        return source.sensordata[..., int(self.model.sensor_adr[begin]) : stop]  # type: ignore[no-any-return]


def passive(model: Any) -> Any:
    """A copy with actuation disabled, for resets. dm_control toggles the flag, which other threads might read."""
    return _disabled(model, mujoco.mjtDisableBit.mjDSBL_ACTUATION)


def without_islands(model: Any) -> Any:
    """A copy for stepping without islands, the groups of bodies that the constraint solver may treat separately.

    If all joints belong to one tree of bodies, the results are bit-exact and a step takes 6 % less time. Otherwise
    (jaco: arm and brick) rounding would differ, so islands stay enabled.
    """
    return _disabled(model, mujoco.mjtDisableBit.mjDSBL_ISLAND) if model.ntree == 1 else model


def without_sensors(model: Any) -> Any:
    """A copy with the same motion and without sensors, for physics steps whose sensors are not read."""
    return _disabled(model, mujoco.mjtDisableBit.mjDSBL_SENSOR)


def _disabled(model: Any, flag: Any) -> Any:
    model = copy.copy(model)
    model.opt.disableflags |= int(flag)
    return model


def suite_file(filename: str) -> str:
    """The path of a model of dm_control's suite, found without importing dm_control (which looks for OpenGL)."""
    spec = importlib.util.find_spec("dm_control")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("dm_control is not installed: pip install dm_control")
    return str(Path(spec.submodule_search_locations[0], "suite", filename))


def gymnasium_file(filename: str) -> str:
    """The path of a model of Gymnasium's MuJoCo environments."""
    return str(Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / filename)


def shaken_start(model: Any, data: Any, random: np.random.RandomState) -> None:
    """Gymnasium's start: positions within 0.1 of the model's own, velocities normal with deviation 0.1."""
    data.qpos[:] = model.qpos0 + random.uniform(-0.1, 0.1, model.nq)
    data.qvel[:] = 0.1 * random.standard_normal(model.nv)


def randomise_joints(model: Any, data: Any, random: np.random.RandomState) -> None:
    """Hinges and slides: within their limits, else hinges over the whole circle; one draw each, in their order."""
    for joint in range(model.njnt):
        kind, address = model.jnt_type[joint], model.jnt_qposadr[joint]
        if model.jnt_limited[joint]:
            data.qpos[address] = random.uniform(*model.jnt_range[joint])
        elif kind == mujoco.mjtJoint.mjJNT_HINGE:
            data.qpos[address] = random.uniform(-np.pi, np.pi)
