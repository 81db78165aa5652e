"""Quadruped: dm_control's walk and run, and URLB's stand and jump.

Stand rewards an upright torso; jump multiplies this with the height of the centre of mass. The episode starts in a
random orientation at the lowest height, in steps of 1 cm, without contact with the floor. dm_control tests the heights
from below with two forward passes each (20 ms per reset). Contact is monotone in the height, so this module bisects
the same heights with collision detection only.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from cic.envs.catalogue import DOMAINS, Quantity, View
from cic.envs.suite.domain import Domain, Floats, Views, suite_file
from cic.envs.suite.env import SuiteEnv
from cic.envs.suite.shaping import ramp

WALK_SPEED, RUN_SPEED, JUMP_HEIGHT = 0.5, 5.0, 1.0
standing = ramp(1.0, 2.0, 0.0)
walking, running = ramp(WALK_SPEED, WALK_SPEED, 0.5), ramp(RUN_SPEED, RUN_SPEED, 0.5)
jumping = ramp(JUMP_HEIGHT, JUMP_HEIGHT, 0.5)
FLOOR = 100.0  # dm_control's for running; only pictures depend on it
HEIGHTS = np.concatenate([[0.0], np.cumsum(np.full(1000, 0.01))])  # summed one by one, as dm_control's loop does
FETCH_AND_ESCAPE = ("wall_px", "wall_py", "wall_nx", "wall_ny", "terrain")  # geoms of tasks that are not part of URLB


class Quadruped(Domain):
    info = DOMAINS["quadruped"]
    substeps = 4
    drawing = (
        View(Quantity("y", "m", (1,), physics=True), Quantity("x", "m", (0,), physics=True), "seen from above"),
        View(Quantity("height", "m", (2,), physics=True), smooth=1.0),
        View(Quantity("uprightness", "1: upright", (47,))),
    )
    camera = "y"

    @classmethod
    def build(cls) -> Any:
        spec = mujoco.MjSpec.from_file(suite_file("quadruped.xml"))
        for name in FETCH_AND_ESCAPE:
            spec.delete(spec.geom(name))
        spec.delete(spec.body("ball"))
        spec.delete(spec.site("target"))
        for sensor in [s for s in spec.sensors if s.type == mujoco.mjtSensor.mjSENS_RANGEFINDER]:
            spec.delete(sensor)
        spec.geom("floor").size = [FLOOR, FLOOR, 0.5]
        return spec.compile()

    def observed(self, source: Any) -> Views:
        hinges = source.qpos[..., 7:], source.qvel[..., 6:], source.act
        upright = source.xmat[..., self.id("body", "torso"), 8:]
        imu = self.sensor(source, "imu_accel", "imu_gyro")
        force_torque = self.sensor(source, "force_toe_front_left", "torque_toe_back_left")
        return *hinges, self.sensor(source, "velocimeter"), upright, imu, force_torque

    def squash(self, obs: Floats) -> None:
        force_torque = obs[:, 54:78]
        np.arcsinh(force_torque, out=force_torque)

    def measured(self, source: Any) -> Views:
        upright = source.xmat[..., self.id("body", "torso"), 8:]
        speed = self.sensor(source, "velocimeter")[..., :1]
        return upright, speed, self.sensor(source, "center_of_mass")[..., 2:]

    def rewards(self, upright: float, speed: float, mass_height: float) -> tuple[float, ...]:
        stand = standing(upright)
        return stand, stand * walking(speed), stand * running(speed), stand * jumping(mass_height)

    def place(self, data: Any, random: np.random.RandomState) -> None:
        orientation = random.randn(4)
        orientation /= np.linalg.norm(orientation)
        data.qpos[:3], data.qpos[3:7] = 0.0, orientation
        height = self._lowest_free_height(data)
        mujoco.mj_resetData(self.model, data)
        mujoco.mj_forward(self.passive, data)
        data.qpos[:7] = 0.0, 0.0, height, *orientation
        mujoco.mj_forward(self.passive, data)

    def _lowest_free_height(self, data: Any) -> float:
        touching, free = 0, len(HEIGHTS) - 1
        while free - touching > 1:
            middle = (touching + free) // 2
            data.qpos[2] = HEIGHTS[middle]
            mujoco.mj_kinematics(self.model, data)
            mujoco.mj_collision(self.model, data)
            touching, free = (middle, free) if data.ncon else (touching, middle)
        return float(HEIGHTS[free])


def create(name: str, task: str | None, num_envs: int, seed: int, threads: int | None) -> SuiteEnv:
    """The quadruped of `cic.envs.make`."""
    return SuiteEnv(Quadruped(task), name, num_envs, seed, threads)
