"""Half cheetah: Gymnasium's model as METRA and CSF use it, with its position observed and 200 steps.

The tasks are specific to this library: the reward grows linearly from 0 at rest to 1 at 6 m/s in one direction.
Velocities are divided by their typical size, as in METRA. METRA also scales positions; here they are in metres.
"""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np

from cic.envs.catalogue import DOMAINS, Quantity, View
from cic.envs.suite.domain import Domain, Floats, Views, gymnasium_file, shaken_start
from cic.envs.suite.env import SuiteEnv
from cic.envs.suite.shaping import ramp

SPEED = 6.0
fast = ramp(SPEED, SPEED, 0.0)
USUAL = np.array([0.75, 0.75, 1.6, *[6.3] * 6])  # m/s, rad/s


class HalfCheetah(Domain):
    info = DOMAINS["half_cheetah"]
    substeps = 5
    drawing = (
        View(Quantity("distance", "m", (0,))),
        View(Quantity("torso turned forward", "turns", (2,), scale=0.5 / math.pi)),
        View(Quantity("speed", "m/s", (9,), scale=USUAL[0]), smooth=1.0),
    )

    @classmethod
    def build(cls) -> Any:
        return mujoco.MjModel.from_xml_path(gymnasium_file("half_cheetah.xml"))

    def observed(self, source: Any) -> Views:
        return source.qpos, source.qvel

    def squash(self, obs: Floats) -> None:
        obs[:, 9:] /= USUAL

    def measured(self, source: Any) -> Views:
        return (source.qvel[..., :1],)

    def rewards(self, speed: float) -> tuple[float, ...]:
        return fast(speed), fast(-speed)

    def place(self, data: Any, random: np.random.RandomState) -> None:
        shaken_start(self.model, data, random)


def create(name: str, task: str | None, num_envs: int, seed: int, threads: int | None) -> SuiteEnv:
    """The half cheetah of `cic.envs.make`."""
    return SuiteEnv(HalfCheetah(task), name, num_envs, seed, threads)
