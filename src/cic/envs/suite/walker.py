"""Planar walker: dm_control's stand, walk and run, and URLB's flip.

Flip pays for angular momentum of the torso's subtree about y (≥ 5, falling linearly to 0 over 5) where walk and run
pay for horizontal speed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import mujoco
import numpy as np

from cic.envs.catalogue import DOMAINS
from cic.envs.suite.domain import Array, Domain, Floats, randomise_joints, suite_file
from cic.envs.suite.shaping import bell, ramp
from cic.envs.vector import SuiteEnv

STAND_HEIGHT, WALK_SPEED, RUN_SPEED, SPIN = 1.2, 1.0, 8.0, 5.0


class Fields(NamedTuple):
    axes: Floats  # (N, 7, 2) x and z entries of each body's x axis
    height: Floats  # (N, 1) of the torso
    upright: Floats  # (N, 1) cosine between the torso's z axis and the world's
    velocity: Floats  # (N, 9)
    speed: Floats  # (N, 1) horizontal, of the centre of mass
    spin: Floats  # (N, 1) angular momentum about y


class Walker(Domain[Fields]):
    info = DOMAINS["walker"]
    substeps = 10

    @classmethod
    def build(cls) -> Any:
        return mujoco.MjModel.from_xml_path(suite_file("walker.xml"))

    def view(self, data: Any) -> Fields:
        torso, speed = self.id("body", "torso"), self.sensor("torso_subtreelinvel").start
        return Fields(
            axes=data.xmat[1:, 0:3:2],
            height=data.xpos[torso, 2:],
            upright=data.xmat[torso, 8:],
            velocity=data.qvel,
            speed=data.sensordata[speed : speed + 1],
            spin=data.subtree_angmom[torso, 1:2],
        )

    def place(self, data: Any, random: np.random.RandomState) -> None:
        randomise_joints(self.model, data, random)

    def observe(self, fields: Fields) -> Array:
        n = len(fields.height)
        obs = np.empty((n, 24), np.float32)
        obs[:, :14] = fields.axes.reshape(n, 14)
        obs[:, 14:15] = fields.height
        obs[:, 15:] = fields.velocity
        return obs

    def rewards(self, fields: Fields) -> dict[str, Floats]:
        standing = bell(-fields.height[:, 0], -STAND_HEIGHT, STAND_HEIGHT / 2)
        stand = (3 * standing + (1 + fields.upright[:, 0]) / 2) / 4
        speed = fields.speed[:, 0]
        return {
            "stand": stand,
            "walk": stand * (5 * ramp(speed, WALK_SPEED, WALK_SPEED / 2, 0.5) + 1) / 6,
            "run": stand * (5 * ramp(speed, RUN_SPEED, RUN_SPEED / 2, 0.5) + 1) / 6,
            "flip": stand * (5 * ramp(fields.spin[:, 0], SPIN, SPIN, 0.0) + 1) / 6,
        }


def create(name: str, task: str | None, num_envs: int, seed: int, threads: int | None) -> SuiteEnv:
    """The walker of `cic.envs.make`."""
    return SuiteEnv(Walker(task), name, num_envs, seed, threads)
