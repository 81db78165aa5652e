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

from cic.envs.suite.domain import passive
from cic.envs.suite.inverse_kinematics import reach_pose

Floats = npt.NDArray[np.float64]

HAND_LOW, HAND_HIGH = np.array([-0.1, -0.1, 0.2]), np.array([0.1, 0.1, 0.4])
DOWN = np.array([0.0, 0.70710678118, 0.70710678118, 0.0])
ARM, FINGERS, BRICK = slice(0, 6), slice(6, 9), slice(9, 16)  # in `qpos`
BRICK_VELOCITY = slice(9, 15)  # in `qvel`
POSES, SOLUTIONS, PLACEMENTS = 1000, 10, 20  # attempts; dm_control gives up after 10 poses, and the run with it
SETTLE_TIME, STILL_VELOCITY, STILL_ACCELERATION = 2.0, 1e-3, 1e-2


class Start:
    """Puts a copy that has been reset into an initial state."""

    def __init__(self, model: Any, brick_place: Floats) -> None:
        self._model, self._brick_place = model, brick_place
        owners = [model.body(model.geom_bodyid[geom]).name for geom in range(model.ngeom)]
        self._owner = ["/".join(owner.split("/")[:-1]) for owner in owners]  # "jaco_arm", "jaco_arm/jaco_hand", …
        self._pinch = model.site("jaco_arm/jaco_hand/pinchsite").id
        self._finger_range = model.jnt_range[FINGERS].copy()
        limited = model.jnt_limited[ARM].astype(bool)[:, None]
        self._arm_range = np.where(limited, model.jnt_range[ARM], [0.0, 2 * np.pi]).T
        self._passive = passive(model)
        self._without_brick = copy.copy(model)
        brick = np.array([owner == "duplo2x4" for owner in self._owner])
        self._without_brick.geom_contype[brick] = self._without_brick.geom_conaffinity[brick] = 0

    def __call__(self, data: Any, random: np.random.RandomState) -> None:
        random.uniform()  # the radius of the brick's studs, drawn from an interval without width
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
                if not any(self._collides(contact) for contact in data.contact):
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

    def _collides(self, contact: Any) -> bool:
        """Arm with arm, arm with hand, or either with the table. The brick does not count, nor hand with hand."""
        one, other = sorted((self._owner[contact.geom1], self._owner[contact.geom2]))
        return contact.dist <= 0 and (one, other) in _COLLISIONS

    def _place_brick(self, data: Any, random: np.random.RandomState) -> None:
        mujoco.mj_forward(self._without_brick, data)
        for _ in range(PLACEMENTS):
            data.qpos[BRICK][:3] = random.uniform(self._brick_place, self._brick_place, size=3)
            data.qpos[BRICK][3:] = _turned(random.uniform(-np.pi, np.pi))
            mujoco.mj_forward(self._model, data)
            if not any(
                contact.dist <= 0 and "duplo2x4" in (self._owner[contact.geom1], self._owner[contact.geom2])
                for contact in data.contact
            ):
                return
        raise RuntimeError(f"jaco: the brick collides in {PLACEMENTS} attempts")

    def _settle(self, data: Any) -> None:
        qpos, qvel, time = data.qpos[:9].copy(), data.qvel[:9].copy(), data.time
        while data.time - time < SETTLE_TIME:
            mujoco.mj_step2(self._model, data)
            mujoco.mj_step1(self._model, data)
            data.qpos[:9], data.qvel[:9] = qpos, qvel
            mujoco.mj_forward(self._model, data)
            velocity, acceleration = data.qvel[BRICK_VELOCITY], data.qacc[BRICK_VELOCITY]
            if np.abs(velocity).max() < STILL_VELOCITY and np.abs(acceleration).max() < STILL_ACCELERATION:
                break
        data.time = time


_COLLISIONS = {
    ("jaco_arm", "jaco_arm"),
    ("jaco_arm", "jaco_arm/jaco_hand"),
    ("", "jaco_arm"),
    ("", "jaco_arm/jaco_hand"),
}


def _turned(angle: float) -> Floats:
    """The quaternion of a turn about z, normalised as dm_control does it."""
    axis = np.array([0.0, 0.0, 1.0]) * angle
    size = np.linalg.norm(axis)
    quaternion = np.concatenate([[np.cos(size / 2)], axis / size * np.sin(size / 2)])
    return np.asarray(quaternion / np.linalg.norm(quaternion))
