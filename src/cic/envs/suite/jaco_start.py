"""How an episode of jaco starts, as in dm_control's composer: the same draws and the same calls, so the same state.

The fingers close by a random amount, inverse kinematics bring the hand, pointing down, to a random point above the
table, and the brick is put in its place, turned at random, and left to settle while the arm is held.
"""

from __future__ import annotations

import copy
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from cic.envs.suite.domain import passive, without_sensors
from cic.envs.suite.inverse_kinematics import reach_pose

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

HAND_LOW, HAND_HIGH = np.array([-0.1, -0.1, 0.2]), np.array([0.1, 0.1, 0.4])
DOWN = np.array([0.0, 0.70710678118, 0.70710678118, 0.0])
ARM, FINGERS, BRICK = slice(0, 6), slice(6, 9), slice(9, 16)  # in `qpos`
BRICK_VELOCITY = slice(9, 15)  # in `qvel`
POSES, SOLUTIONS, PLACEMENTS = 1000, 10, 20  # attempts; dm_control fails after 10 poses
SETTLE_TIME, STILL_VELOCITY, STILL_ACCELERATION = 2.0, 1e-3, 1e-2


class Start:
    """Puts an environment that has been reset into an initial state."""

    def __init__(self, model: Any, brick_place: Floats) -> None:
        self._model, self._brick_place = model, brick_place
        bodies = [model.body(model.geom_bodyid[geom]).name for geom in range(model.ngeom)]
        owner = np.array(["/".join(body.split("/")[:-1]) for body in bodies])  # "jaco_arm", "jaco_arm/jaco_hand", …
        table, arm, hand, brick = (owner == name for name in ("", "jaco_arm", "jaco_arm/jaco_hand", "duplo2x4"))
        # Arm with arm, arm with hand, or either with the table. The brick does not count, nor hand with hand.
        self._arm_collisions = _either(arm, arm | hand | table) | _either(hand, table)
        self._brick_collisions = _either(brick, np.ones_like(brick))
        self._pinch = model.site("jaco_arm/jaco_hand/pinchsite").id
        self._finger_range = model.jnt_range[FINGERS].copy()
        limited = model.jnt_limited[ARM].astype(bool)[:, None]
        self._arm_range = np.where(limited, model.jnt_range[ARM], [0.0, 2 * np.pi]).T
        self._passive = passive(model)
        self._without_sensors = without_sensors(model)
        self._without_brick = copy.copy(model)
        self._without_brick.geom_contype[brick] = self._without_brick.geom_conaffinity[brick] = 0

    def __call__(self, data: Any, random: np.random.RandomState) -> None:
        random.uniform()  # the radius of the brick's studs, drawn from an interval of width 0, as in dm_control
        low, high = self._finger_range.T
        data.qpos[FINGERS] = low + (high - low) * random.uniform()
        mujoco.mj_forward(self._passive, data)
        self._place_hand(data, random)
        self._place_brick(data, random)
        self._settle(data)

    def _place_hand(self, data: Any, random: np.random.RandomState) -> None:
        initial = data.qpos[ARM].copy()
        for _ in range(POSES):
            target = random.uniform(HAND_LOW, HAND_HIGH)
            if self._solve(data, random, target):
                mujoco.mj_forward(self._model, data)
                if not self._touches(data, self._arm_collisions):
                    return
            data.qpos[ARM] = initial
        raise RuntimeError(f"jaco: no pose without collision in {POSES} attempts")

    def _solve(self, data: Any, random: np.random.RandomState, target: Floats) -> bool:
        """Bring the hand to `target`, from random joint angles if it takes more than one attempt."""
        for _ in range(SOLUTIONS):
            if reach_pose(self._model, data, self._pinch, target, DOWN) and self._within_range(data.qpos[ARM]):
                return True
            data.qpos[ARM] = random.uniform(*self._arm_range)
        return False

    def _within_range(self, angles: Floats) -> bool:
        """Turn the angles, in place, by whole circles into their ranges, if possible."""
        possible = True
        for i, (low, high) in enumerate(self._arm_range.T):
            while angles[i] >= high:
                angles[i] -= 2 * np.pi
            while angles[i] < low:
                angles[i] += 2 * np.pi
                if angles[i] > high:
                    possible = False
                    break
        return possible

    def _touches(self, data: Any, pairs: Bools) -> bool:
        """Whether two geoms of `pairs`, which must not touch, are in contact."""
        contact = data.contact
        return bool(pairs[contact.geom1[contact.dist <= 0], contact.geom2[contact.dist <= 0]].any())

    def _place_brick(self, data: Any, random: np.random.RandomState) -> None:
        mujoco.mj_forward(self._without_brick, data)
        for _ in range(PLACEMENTS):
            data.qpos[BRICK][:3] = random.uniform(self._brick_place, self._brick_place, size=3)
            data.qpos[BRICK][3:] = _turned(random.uniform(-np.pi, np.pi))
            mujoco.mj_forward(self._model, data)
            if not self._touches(data, self._brick_collisions):
                return
        raise RuntimeError(f"jaco: the brick collides in {PLACEMENTS} attempts")

    def _settle(self, data: Any) -> None:
        """Step as dm_control does, in whole steps; `mj_forward` repeats the second half of a step."""
        model = self._without_sensors
        qpos, qvel, time = data.qpos[:9].copy(), data.qvel[:9].copy(), data.time
        while data.time - time < SETTLE_TIME:
            mujoco.mj_step2(model, data)
            data.qpos[:9], data.qvel[:9] = qpos, qvel
            mujoco.mj_forward(model, data)
            velocity, acceleration = data.qvel[BRICK_VELOCITY], data.qacc[BRICK_VELOCITY]
            if np.abs(velocity).max() < STILL_VELOCITY and np.abs(acceleration).max() < STILL_ACCELERATION:
                break
        data.time = time


def _either(some: Bools, others: Bools) -> Bools:
    """(geoms, geoms): pairs of one of `some` with one of `others`."""
    pairs = np.outer(some, others)
    return pairs | pairs.T


def _turned(angle: float) -> Floats:
    """The quaternion of a turn about z, normalised as dm_control does it."""
    axis = np.array([0.0, 0.0, 1.0]) * angle
    size = np.linalg.norm(axis)
    quaternion = np.concatenate([[np.cos(size / 2)], axis / size * np.sin(size / 2)])
    return np.asarray(quaternion / np.linalg.norm(quaternion))
