"""Hopper: dm_control's stand and hop. (Gymnasium's Hopper, which ends on falling, is `"gymnasium:Hopper-v5"`.)"""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np

from cic.envs.catalogue import DOMAINS, Quantity, View
from cic.envs.suite.domain import Domain, Floats, Views, randomise_joints, suite_file
from cic.envs.suite.env import SuiteEnv
from cic.envs.suite.shaping import inside, ramp, small_control

STAND_HEIGHT, TOO_HIGH, HOP_SPEED = 0.6, 2.0, 2.0
standing, hopping = inside(STAND_HEIGHT, TOO_HIGH), ramp(HOP_SPEED, HOP_SPEED / 2, 0.5)


class Hopper(Domain):
    info = DOMAINS["hopper"]
    substeps = 4
    drawing = (
        View(Quantity("distance", "m", (0,), physics=True)),
        View(Quantity("height above its start", "m", (0,)), smooth=1.0),
        View(Quantity("torso turned forward", "turns", (1,), scale=0.5 / math.pi)),
        View(Quantity("speed", "m/s", (6,)), smooth=2.0),
    )

    @classmethod
    def build(cls) -> Any:
        return mujoco.MjModel.from_xml_path(suite_file("hopper.xml"))

    def observed(self, source: Any) -> Views:
        return source.qpos[..., 1:], source.qvel, self.sensor(source, "touch_toe", "touch_heel")

    def squash(self, obs: Floats) -> None:
        touch = obs[:, 13:15]
        np.log1p(touch, out=touch)

    def measured(self, source: Any) -> Views:
        torso, foot = self.id("body", "torso"), self.id("body", "foot")
        speed = self.sensor(source, "torso_subtreelinvel")[..., :1]
        return source.xipos[..., torso, 2:], source.xipos[..., foot, 2:], speed, source.ctrl

    def rewards(self, torso: float, foot: float, speed: float, *controls: float) -> tuple[float, ...]:
        upright = standing(torso - foot)
        return upright * small_control(*controls), upright * hopping(speed)

    def place(self, data: Any, random: np.random.RandomState) -> None:
        randomise_joints(self.model, data, random)


def create(name: str, task: str | None, num_envs: int, seed: int, threads: int | None) -> SuiteEnv:
    """The hopper of `cic.envs.make`."""
    return SuiteEnv(Hopper(task), name, num_envs, seed, threads)
