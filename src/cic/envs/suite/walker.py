"""Planar walker: dm_control's stand, walk and run, and URLB's flip.

Flip rewards angular momentum of the torso's subtree about y (≥ 5, falling linearly to 0 over 5) where walk and run
reward horizontal speed.
"""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np

from cic.envs.catalogue import DOMAINS, Quantity, View
from cic.envs.suite.domain import Domain, Views, randomise_joints, suite_file
from cic.envs.suite.env import SuiteEnv
from cic.envs.suite.shaping import bell, ramp

STAND_HEIGHT, WALK_SPEED, RUN_SPEED, SPIN = 1.2, 1.0, 8.0, 5.0
high = bell(-STAND_HEIGHT, STAND_HEIGHT / 2)  # of the negative height: `bell` rewards small values
walking, running = ramp(WALK_SPEED, WALK_SPEED / 2, 0.5), ramp(RUN_SPEED, RUN_SPEED / 2, 0.5)
flipping = ramp(SPIN, SPIN, 0.0)


class Walker(Domain):
    info = DOMAINS["walker"]
    substeps = 10
    drawing = (
        View(Quantity("distance", "m", (1,), physics=True)),
        View(Quantity("height", "m", (14,)), smooth=1.0),
        View(Quantity("torso turned forward", "turns", (2,), physics=True, scale=0.5 / math.pi)),
        View(Quantity("speed", "m/s", (10,), physics=True), smooth=2.0),
    )

    @classmethod
    def build(cls) -> Any:
        return mujoco.MjModel.from_xml_path(suite_file("walker.xml"))

    def observed(self, source: Any) -> Views:
        axes = source.xmat[..., 1:, 0:3:2]  # two numbers for the orientation of each of 7 bodies in the plane
        return axes, source.xpos[..., self.id("body", "torso"), 2:], source.qvel

    def measured(self, source: Any) -> Views:
        torso = self.id("body", "torso")
        height, upright = source.xpos[..., torso, 2:], source.xmat[..., torso, 8:]
        return (
            height,
            upright,
            self.sensor(source, "torso_subtreelinvel")[..., :1],
            source.subtree_angmom[..., torso, 1:2],
        )

    def rewards(self, height: float, upright: float, speed: float, spin: float) -> tuple[float, ...]:
        stand = (3 * high(-height) + (1 + upright) / 2) / 4
        walk = stand * (5 * walking(speed) + 1) / 6
        run = stand * (5 * running(speed) + 1) / 6
        flip = stand * (5 * flipping(spin) + 1) / 6
        return stand, walk, run, flip

    def place(self, data: Any, random: np.random.RandomState) -> None:
        randomise_joints(self.model, data, random)


def create(name: str, task: str | None, num_envs: int, seed: int, threads: int | None) -> SuiteEnv:
    """The walker of `cic.envs.make`."""
    return SuiteEnv(Walker(task), name, num_envs, seed, threads)
