"""Point mass: dm_control's `easy` (reach the centre) and reaching each corner of the square.

The corner tasks are ours: the same product of nearness and small controls, with a wider margin, since a corner is far
from most initial positions. Nearness is 1 within 5 cm and 0.1 at 30 cm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import mujoco
import numpy as np

from cic.envs.catalogue import DOMAINS
from cic.envs.suite.domain import Array, Domain, Floats, randomise_joints, suite_file
from cic.envs.suite.shaping import bell, small_control
from cic.envs.vector import SuiteEnv

TARGET_SIZE = 0.015
CORNER, CORNER_SIZE, CORNER_MARGIN = 0.25, 0.05, 0.25
CORNERS = {
    "reach_top_left": (-CORNER, CORNER),
    "reach_top_right": (CORNER, CORNER),
    "reach_bottom_left": (-CORNER, -CORNER),
    "reach_bottom_right": (CORNER, -CORNER),
}


class Fields(NamedTuple):
    position: Floats  # (N, 2)
    velocity: Floats  # (N, 2)
    control: Floats  # (N, 2)


class PointMass(Domain[Fields]):
    info = DOMAINS["point_mass"]
    substeps = 1

    @classmethod
    def build(cls) -> Any:
        return mujoco.MjModel.from_xml_path(suite_file("point_mass.xml"))

    def view(self, data: Any) -> Fields:
        return Fields(position=data.qpos, velocity=data.qvel, control=data.ctrl)

    def place(self, data: Any, random: np.random.RandomState) -> None:
        randomise_joints(self.model, data, random)

    def observe(self, fields: Fields) -> Array:
        obs = np.empty((len(fields.position), 4), np.float32)
        obs[:, :2] = fields.position
        obs[:, 2:] = fields.velocity
        return obs

    def rewards(self, fields: Fields) -> dict[str, Floats]:
        x, y = fields.position[:, 0], fields.position[:, 1]
        control = small_control(fields.control)
        rewards = {"easy": bell(np.hypot(x, y), TARGET_SIZE, TARGET_SIZE) * control}
        for task, (left, top) in CORNERS.items():
            rewards[task] = bell(np.hypot(x - left, y - top), CORNER_SIZE, CORNER_MARGIN) * control
        return rewards


def create(name: str, task: str | None, num_envs: int, seed: int, threads: int | None) -> SuiteEnv:
    """The point mass of `cic.envs.make`."""
    return SuiteEnv(PointMass(task), name, num_envs, seed, threads)
