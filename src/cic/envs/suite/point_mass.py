"""Point mass: dm_control's `easy` (reach the centre) and reaching each corner of the square.

The corner tasks are specific to this library. Their reward is the same product of nearness and small controls, with a
wider margin, because a corner is far from most initial positions. Nearness is 1 within 5 cm and 0.1 at 30 cm.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from cic.envs.catalogue import DOMAINS, View
from cic.envs.suite.domain import Domain, Views, randomise_joints, suite_file
from cic.envs.suite.env import SuiteEnv
from cic.envs.suite.shaping import bell, length, small_control

TARGET_SIZE = 0.015
CORNER, CORNER_SIZE, CORNER_MARGIN = 0.25, 0.05, 0.25
at_target, near_corner = bell(TARGET_SIZE, TARGET_SIZE), bell(CORNER_SIZE, CORNER_MARGIN)
CORNERS = ((-CORNER, CORNER), (CORNER, CORNER), (-CORNER, -CORNER), (CORNER, -CORNER))  # in the order of the tasks


class PointMass(Domain):
    info = DOMAINS["point_mass"]
    substeps = 1
    drawing = (View(info.coverage[1], info.coverage[0], "seen from above"),)
    ghosts = (16, 0.06)

    @classmethod
    def build(cls) -> Any:
        return mujoco.MjModel.from_xml_path(suite_file("point_mass.xml"))

    def observed(self, source: Any) -> Views:
        return source.qpos, source.qvel

    def measured(self, source: Any) -> Views:
        return source.qpos, source.ctrl

    def rewards(self, x: float, y: float, a: float, b: float) -> tuple[float, ...]:
        gentle = small_control(a, b)
        rewards = [gentle * at_target(length(x, y))]
        for left, top in CORNERS:
            rewards.append(gentle * near_corner(length(x - left, y - top)))
        return tuple(rewards)

    def place(self, data: Any, random: np.random.RandomState) -> None:
        randomise_joints(self.model, data, random)


def create(name: str, task: str | None, num_envs: int, seed: int, threads: int | None) -> SuiteEnv:
    """The point mass of `cic.envs.make`."""
    return SuiteEnv(PointMass(task), name, num_envs, seed, threads)
