"""Ant: Gymnasium's model as METRA and CSF use it, with its position observed, 200 steps and no termination.

The tasks are specific to this library: the reward grows linearly from 0 at rest to 1 at 3 m/s along an axis of the
plane. Velocities are divided by their typical size, as in METRA, because joint velocities of 5 rad/s would dominate the
skill in the input of the networks. METRA also scales positions; here they are in metres.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from cic.envs.catalogue import DOMAINS, Quantity, View
from cic.envs.suite.domain import Domain, Floats, Views, gymnasium_file, shaken_start
from cic.envs.suite.env import SuiteEnv
from cic.envs.suite.shaping import ramp

SPEED = 3.0
fast = ramp(SPEED, SPEED, 0.0)
USUAL = np.array([0.8, 0.8, 1.0, 1.75, 1.75, 1.85, *[4.4] * 8])  # m/s, rad/s


class Ant(Domain):
    info = DOMAINS["ant"]
    substeps = 5
    drawing = (
        View(Quantity("y", "m", (1,)), Quantity("x", "m", (0,)), "seen from above"),
        View(Quantity("height", "m", (2,))),
    )

    @classmethod
    def build(cls) -> Any:
        return mujoco.MjModel.from_xml_path(gymnasium_file("ant.xml"))

    def observed(self, source: Any) -> Views:
        return source.qpos, source.qvel

    def squash(self, obs: Floats) -> None:
        obs[:, 15:] /= USUAL

    def measured(self, source: Any) -> Views:
        return (source.qvel[..., :2],)

    def rewards(self, x: float, y: float) -> tuple[float, ...]:
        return fast(x), fast(-x), fast(y), fast(-y)

    def place(self, data: Any, random: np.random.RandomState) -> None:
        shaken_start(self.model, data, random)


def create(name: str, task: str | None, num_envs: int, seed: int, threads: int | None) -> SuiteEnv:
    """The ant of `cic.envs.make`."""
    return SuiteEnv(Ant(task), name, num_envs, seed, threads)
