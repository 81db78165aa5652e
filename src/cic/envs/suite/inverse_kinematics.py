"""Damped least squares (Buss 2004) from a site's pose to joint positions: dm_control's iteration, step for step.

The operations and their order are the same, because the initial states of jaco depend on rounding. Only the forward
pass differs: dm_control computes everything including contacts, this module only the positions of the bodies.
"""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

TOLERANCE, ITERATIONS, TURN_WEIGHT = 1e-14, 100, 2.0
JOINTS = 6
DAMPING, DAMPED_ABOVE = np.eye(JOINTS) * 3e-2, 0.1
LONGEST_UPDATE, HOPELESS = 2.0, 20.0  # radians; error per radian of update at which it fails


def reach_pose(model: Any, data: Any, site: int, position: Floats, orientation: Floats) -> bool:
    """Move the first `JOINTS` degrees of freedom until `site` has the pose; whether that succeeded."""
    jacobian, error = np.empty((6, model.nv)), np.empty(6)
    motion = np.zeros(model.nv)
    for _ in range(ITERATIONS):
        mujoco.mj_kinematics(model, data)
        error[:3] = position - data.site_xpos[site]
        error[3:] = _turn(data.site_xmat[site], orientation)
        size = _norm(error[:3]) + _norm(error[3:]) * TURN_WEIGHT
        if size < TOLERANCE:
            return True
        mujoco.mj_comPos(model, data)  # which the Jacobian needs
        mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], site)
        update = _solve(jacobian[:, :JOINTS], error, damped=size > DAMPED_ABOVE)
        update_size = _norm(update)
        if size / update_size > HOPELESS:
            return False
        if update_size > LONGEST_UPDATE:
            update *= LONGEST_UPDATE / update_size
        motion[:JOINTS] = update
        mujoco.mj_integratePos(model, data.qpos, motion, 1)
    return False


def _turn(matrix: Floats, orientation: Floats) -> Floats:
    """The rotation, as axis times angle, from a rotation matrix to a quaternion."""
    quaternion, inverse, left, turn = np.empty(4), np.empty(4), np.empty(4), np.empty(3)
    mujoco.mju_mat2Quat(quaternion, matrix)
    mujoco.mju_negQuat(inverse, quaternion)
    mujoco.mju_mulQuat(left, orientation, inverse)
    mujoco.mju_quat2Vel(turn, left, 1)
    return turn


def _norm(vector: Floats) -> float:
    """As `np.linalg.norm` computes it."""
    return math.sqrt(vector.dot(vector))


def _solve(jacobian: Floats, error: Floats, *, damped: bool) -> Floats:
    normal, right = jacobian.T.dot(jacobian), jacobian.T.dot(error)
    if damped:
        return np.linalg.solve(normal + DAMPING, right)
    return np.asarray(np.linalg.lstsq(normal, right, rcond=-1)[0])
