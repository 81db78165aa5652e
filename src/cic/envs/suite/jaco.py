"""Jaco arm reaching for a Duplo brick: URLB's four tasks, on dm_control's manipulation models.

A task defines the initial position of the brick and rewards the hand for being near the brick. In the reward-free
domain the brick starts at the top left, as in URLB's pre-training. One deviation from URLB, because all tasks are
rewarded at once: a task whose brick starts elsewhere rewards the hand near the initial position of its own brick.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cic.envs.catalogue import CORNERS, DOMAINS, View
from cic.envs.rendering import importing_dm_control
from cic.envs.suite.domain import Domain, Floats, Views
from cic.envs.suite.env import SuiteEnv
from cic.envs.suite.jaco_start import Start
from cic.envs.suite.shaping import bell, length

RADIUS = 0.05
near = bell(RADIUS, RADIUS)
PLACES = ((-0.09, 0.09, 0.001), (0.09, 0.09, 0.001), (-0.09, -0.09, 0.001), (0.09, -0.09, 0.001))  # of `CORNERS`


class Jaco(Domain):
    info = DOMAINS["jaco"]
    substeps = 20
    drawing = (
        View(info.coverage[1], info.coverage[0], "the hand, seen from above"),
        View(info.coverage[2], info.coverage[0], "the hand, seen from the front"),
    )

    def __init__(self, task: str | None) -> None:
        super().__init__(task)
        self._brick = CORNERS.index(task) if task else 0
        self._start = Start(self.model, np.array(PLACES[self._brick]))

    @classmethod
    def build(cls) -> Any:
        with importing_dm_control():
            from dm_control import mjcf
            from dm_control.manipulation import reach
        task = reach.reach_duplo_features()
        for entity in task.root_entity.iter_entities():
            entity.initialize_episode_mjcf(np.random.RandomState(0))  # the radius of the studs, always the same
        return mjcf.Physics.from_mjcf_model(task.root_entity.mjcf_model).model.ptr

    def observed(self, source: Any) -> Views:
        arm, hand = np.s_[..., :6], np.s_[..., 6:9]
        twice = np.broadcast_to(source.qpos[arm][..., None], (*source.qpos[arm].shape, 2))  # for sine and cosine
        # The joints turn about their z axes, so the z entries of the torque sensors are the torques on the joints.
        torque = self.sensor(source, "jaco_arm/joint_1_torque", "jaco_arm/joint_6_torque")[..., 2::3]
        pinch = self.id("site", "jaco_arm/jaco_hand/pinchsite")
        brick = ("angular_velocity", "linear_velocity", "orientation", "position")
        return (
            *(twice, torque, source.qvel[arm]),
            *(source.qpos[hand], source.qvel[hand], source.site_xpos[..., pinch, :], source.site_xmat[..., pinch, :]),
            *(self.sensor(source, f"duplo2x4/{name}") for name in brick),
        )

    def squash(self, obs: Floats) -> None:
        sine, cosine, torque = obs[:, 0:12:2], obs[:, 1:12:2], obs[:, 12:18]
        np.sin(sine, out=sine)
        np.cos(cosine, out=cosine)
        torque[:] = np.sign(torque) * np.log1p(np.abs(torque))

    def measured(self, source: Any) -> Views:
        hand = source.site_xpos[..., self.id("site", "jaco_arm/jaco_hand/pinchsite"), :]
        return hand, source.xpos[..., self.id("body", "duplo2x4/"), :]

    def rewards(self, x: float, y: float, z: float, *brick: float) -> tuple[float, ...]:
        places: list[Any] = [*PLACES]
        places[self._brick] = brick
        return tuple([near(length(x - a, y - b, z - c)) for a, b, c in places])

    def place(self, data: Any, random: np.random.RandomState) -> None:
        self._start(data, random)


def create(name: str, task: str | None, num_envs: int, seed: int, threads: int | None) -> SuiteEnv:
    """The arm of `cic.envs.make`."""
    return SuiteEnv(Jaco(task), name, num_envs, seed, threads)
