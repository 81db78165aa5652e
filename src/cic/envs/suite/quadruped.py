"""Quadruped: dm_control's walk and run, and URLB's stand and jump.

Stand pays for an upright torso alone; jump multiplies that with the height of the centre of mass. The episode starts
in a random orientation at the lowest height, in steps of 1 cm, where nothing touches the floor. dm_control climbs
there with two forward passes per centimetre (20 ms per reset); touching a plane is monotone in the height, so we
bisect the same heights with collision detection alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import mujoco
import numpy as np

from cic.envs.catalogue import DOMAINS
from cic.envs.suite.domain import Array, Domain, Floats, suite_file
from cic.envs.suite.shaping import ramp
from cic.envs.vector import SuiteEnv

WALK_SPEED, RUN_SPEED, JUMP_HEIGHT = 0.5, 5.0, 1.0
FLOOR = 100.0  # dm_control's for running; only pictures depend on it
HEIGHTS = np.concatenate([[0.0], np.cumsum(np.full(1000, 0.01))])  # summed one by one, as dm_control's loop does
FETCH_AND_ESCAPE = ("wall_px", "wall_py", "wall_nx", "wall_ny", "terrain")  # geoms of tasks that are not ours


class Fields(NamedTuple):
    position: Floats  # (N, 16) of the hinges
    velocity: Floats  # (N, 16)
    activation: Floats  # (N, 12) of the actuators
    upright: Floats  # (N, 1) cosine between the torso's z axis and the world's
    imu: Floats  # (N, 6) accelerometer and gyroscope
    torso_velocity: Floats  # (N, 3) in its own frame
    force_torque: Floats  # (N, 24) at the toes
    mass_height: Floats  # (N, 1)


class Quadruped(Domain[Fields]):
    info = DOMAINS["quadruped"]
    substeps = 4

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

    def view(self, data: Any) -> Fields:
        first_force, last_torque = self.sensor("force_toe_front_left"), self.sensor("torque_toe_back_left")
        return Fields(
            position=data.qpos[7:],
            velocity=data.qvel[6:],
            activation=data.act,
            upright=data.xmat[self.id("body", "torso"), 8:],
            imu=data.sensordata[self.sensor("imu_accel").start : self.sensor("imu_gyro").stop],
            torso_velocity=data.sensordata[self.sensor("velocimeter")],
            force_torque=data.sensordata[first_force.start : last_torque.stop],
            mass_height=data.sensordata[self.sensor("center_of_mass")][2:],
        )

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

    def observe(self, fields: Fields) -> Array:
        obs = np.empty((len(fields.upright), 78), np.float32)
        obs[:, :16] = fields.position
        obs[:, 16:32] = fields.velocity
        obs[:, 32:44] = fields.activation
        obs[:, 44:47] = fields.torso_velocity
        obs[:, 47:48] = fields.upright
        obs[:, 48:54] = fields.imu
        obs[:, 54:] = np.arcsinh(fields.force_torque)
        return obs

    def rewards(self, fields: Fields) -> dict[str, Floats]:
        upright = ramp(fields.upright[:, 0], 1.0, 2.0, 0.0)
        forward = fields.torso_velocity[:, 0]
        return {
            "stand": upright,
            "walk": upright * ramp(forward, WALK_SPEED, WALK_SPEED, 0.5),
            "run": upright * ramp(forward, RUN_SPEED, RUN_SPEED, 0.5),
            "jump": upright * ramp(fields.mass_height[:, 0], JUMP_HEIGHT, JUMP_HEIGHT, 0.5),
        }


def create(name: str, task: str | None, num_envs: int, seed: int, threads: int | None) -> SuiteEnv:
    """The quadruped of `cic.envs.make`."""
    return SuiteEnv(Quadruped(task), name, num_envs, seed, threads)
