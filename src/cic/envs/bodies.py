"""The poses of MuJoCo bodies, and the effect of a push."""

from __future__ import annotations

from typing import Any, NamedTuple

import mujoco
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Poses(NamedTuple):
    """The poses of all geoms of one environment."""

    positions: Floats  # (G, 3)
    axes: Floats  # (G, 3, 3), rotation matrices


def main_body(model: Any) -> int:
    """The first body of the heaviest tree of bodies that can move."""
    trees = [np.flatnonzero(model.body_treeid == tree) for tree in range(model.ntree)]
    heaviest = max(trees, key=lambda bodies: float(model.body_mass[bodies].sum()), default=np.zeros(1, np.int64))
    return int(heaviest[0])


def shove(model: Any, data: Any, velocity: Floats) -> Floats:
    """(nv,): the change in joint velocities by the impulse that gives the free main body this velocity (3,).

    Joints may restrict the motion: a planar body cannot leave its plane.
    """
    mujoco.mj_forward(model, data)
    body, jacobian, change = main_body(model), np.zeros((3, model.nv)), np.zeros((1, model.nv))
    mujoco.mj_jacSubtreeCom(model, data, jacobian, body)
    impulse = model.body_subtreemass[body] * velocity
    mujoco.mj_solveM(model, data, change, (jacobian.T @ impulse)[None])
    return np.asarray(change[0])


def movable_axes(model: Any) -> npt.NDArray[np.bool_]:
    """(3,): along which axes of the world the joints let the main body move."""
    data, jacobian = mujoco.MjData(model), np.zeros((3, model.nv))
    mujoco.mj_forward(model, data)
    mujoco.mj_jacSubtreeCom(model, data, jacobian, main_body(model))
    return np.asarray(np.abs(jacobian).max(axis=1, initial=0.0) > 1e-6)
