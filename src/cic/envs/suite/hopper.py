"""Hopper: dm_control's stand and hop. (Gymnasium's Hopper, which ends on falling, is `"gymnasium:Hopper-v5"`.)"""

from __future__ import annotations

from typing import Any, NamedTuple

import mujoco
import numpy as np

from cic.envs.catalogue import DOMAINS
from cic.envs.suite.domain import Array, Domain, Floats, randomise_joints, suite_file
from cic.envs.suite.shaping import ramp, small_control
from cic.envs.vector import SuiteEnv

STAND_HEIGHT, TOO_HIGH, HOP_SPEED = 0.6, 2.0, 2.0


class Fields(NamedTuple):
    position: Floats  # (N, 6) without the horizontal one
    velocity: Floats  # (N, 7)
    control: Floats  # (N, 4)
    torso: Floats  # (N, 1) height of its centre of mass
    foot: Floats  # (N, 1)
    speed: Floats  # (N, 1) horizontal, of the centre of mass
    touch: Floats  # (N, 2) toe and heel


class Hopper(Domain[Fields]):
    info = DOMAINS["hopper"]
    substeps = 4

    @classmethod
    def build(cls) -> Any:
        return mujoco.MjModel.from_xml_path(suite_file("hopper.xml"))

    def view(self, data: Any) -> Fields:
        speed = self.sensor("torso_subtreelinvel").start
        return Fields(
            position=data.qpos[1:],
            velocity=data.qvel,
            control=data.ctrl,
            torso=data.xipos[self.id("body", "torso"), 2:],
            foot=data.xipos[self.id("body", "foot"), 2:],
            speed=data.sensordata[speed : speed + 1],
            touch=data.sensordata[self.sensor("touch_toe").start : self.sensor("touch_heel").stop],
        )

    def place(self, data: Any, random: np.random.RandomState) -> None:
        randomise_joints(self.model, data, random)

    def observe(self, fields: Fields) -> Array:
        obs = np.empty((len(fields.speed), 15), np.float32)
        obs[:, :6] = fields.position
        obs[:, 6:13] = fields.velocity
        obs[:, 13:] = np.log1p(fields.touch)
        return obs

    def rewards(self, fields: Fields) -> dict[str, Floats]:
        height = (fields.torso - fields.foot)[:, 0]
        standing = (height >= STAND_HEIGHT) & (height <= TOO_HIGH)
        return {
            "stand": standing * small_control(fields.control),
            "hop": standing * ramp(fields.speed[:, 0], HOP_SPEED, HOP_SPEED / 2, 0.5),
        }


def create(name: str, task: str | None, num_envs: int, seed: int, threads: int | None) -> SuiteEnv:
    """The hopper of `cic.envs.make`."""
    return SuiteEnv(Hopper(task), name, num_envs, seed, threads)
