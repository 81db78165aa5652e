"""dm_control's own environments, and URLB's and our further tasks built on dm_control's classes.

Written from the tasks' definitions with dm_control's `tolerance`, independently of `cic.envs`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cic.envs.rendering import importing_dm_control

with importing_dm_control():
    from dm_control import composer, suite

from dm_control.composer.variation import distributions
from dm_control.manipulation import reach
from dm_control.rl import control
from dm_control.suite import common, hopper, point_mass, quadruped, walker
from dm_control.suite.wrappers import action_scale
from dm_control.utils.rewards import tolerance

INF = float("inf")
BRICKS = {
    "reach_top_left": (-0.09, 0.09, 0.001),
    "reach_top_right": (0.09, 0.09, 0.001),
    "reach_bottom_left": (-0.09, -0.09, 0.001),
    "reach_bottom_right": (0.09, -0.09, 0.001),
}


class Flip(walker.PlanarWalker):
    def get_reward(self, physics: Any) -> float:
        stand = walker.PlanarWalker(0).get_reward(physics)
        spin = physics.named.data.subtree_angmom["torso", 1]
        return stand * (5 * tolerance(spin, (5, INF), margin=5, value_at_margin=0, sigmoid="linear") + 1) / 6


class Stand(quadruped.Move):
    def get_reward(self, physics: Any) -> float:
        return tolerance(physics.torso_upright(), (1, INF), sigmoid="linear", margin=2, value_at_margin=0)


class Jump(Stand):
    def get_reward(self, physics: Any) -> float:
        height = physics.named.data.sensordata["center_of_mass"][2]
        high = tolerance(height, (1.0, INF), margin=1.0, value_at_margin=0.5, sigmoid="linear")
        return super().get_reward(physics) * high


class Corner(point_mass.PointMass):
    def __init__(self, corner: tuple[float, float], random: Any = None) -> None:
        super().__init__(randomize_gains=False, random=random)
        self._corner = np.array(corner)

    def get_reward(self, physics: Any) -> float:
        distance = float(np.linalg.norm(physics.named.data.geom_xpos["pointmass"][:2] - self._corner))
        control = tolerance(physics.control(), margin=1, value_at_margin=0, sigmoid="quadratic").mean()
        return tolerance(distance, (0, 0.05), margin=0.25) * (control + 4) / 5


TASKS: dict[str, dict[str, Any]] = {
    "walker": {
        "stand": lambda r: walker.PlanarWalker(0, r),
        "walk": lambda r: walker.PlanarWalker(1, r),
        "run": lambda r: walker.PlanarWalker(8, r),
        "flip": lambda r: Flip(0, r),
    },
    "quadruped": {
        "stand": lambda r: Stand(0, r),
        "walk": lambda r: quadruped.Move(0.5, r),
        "run": lambda r: quadruped.Move(5, r),
        "jump": lambda r: Jump(0, r),
    },
    "point_mass": {
        "easy": lambda r: point_mass.PointMass(False, r),
        "reach_top_left": lambda r: Corner((-0.25, 0.25), r),
        "reach_top_right": lambda r: Corner((0.25, 0.25), r),
        "reach_bottom_left": lambda r: Corner((-0.25, -0.25), r),
        "reach_bottom_right": lambda r: Corner((0.25, -0.25), r),
    },
    "hopper": {"stand": lambda r: hopper.Hopper(False, r), "hop": lambda r: hopper.Hopper(True, r)},
}
IN_SUITE = {
    "walker": ("stand", "walk", "run"),
    "quadruped": ("walk", "run"),
    "point_mass": ("easy",),
    "hopper": ("stand", "hop"),
}


def _physics(domain: str) -> Any:
    if domain == "quadruped":
        return quadruped.Physics.from_xml_string(quadruped.make_model(floor_size=10), common.ASSETS)
    module = {"walker": walker, "point_mass": point_mass, "hopper": hopper}[domain]
    return module.Physics.from_xml_string(*module.get_model_and_assets())


def _arm(task: str, seed: int) -> Any:
    arm = reach.reach_duplo_features()
    arm._prop_placer._position = distributions.Uniform(BRICKS[task], BRICKS[task])
    return composer.Environment(arm, time_limit=10.0, random_state=seed)


def load(domain: str, task: str, seed: int) -> Any:
    """A dm_env environment with actions in [-1, 1]."""
    if domain == "jaco":
        return action_scale.Wrapper(_arm(task, seed), -1.0, 1.0)
    if task in IN_SUITE[domain]:
        env = suite.load(domain, task, task_kwargs={"random": seed})
    else:
        step = {"walker": 0.025, "quadruped": 0.02, "point_mass": 0.02, "hopper": 0.02}[domain]
        limit = 25 if domain == "walker" else 20
        env = control.Environment(_physics(domain), TASKS[domain][task](seed), time_limit=limit, control_timestep=step)
    return action_scale.Wrapper(env, -1.0, 1.0) if domain == "quadruped" else env


def flat(observation: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([np.ravel(value) for value in observation.values()])


def rewards(domain: str, env: Any) -> dict[str, float]:
    """What every task of the domain would pay for the physics as it is."""
    if domain == "jaco":
        data = env.physics.named.data
        brick, hand = data.xpos["duplo2x4/"], data.site_xpos["jaco_arm/jaco_hand/pinchsite"]
        own = env.task._prop_placer._position.low
        targets = {task: brick if place == own else np.array(place) for task, place in BRICKS.items()}
        distances = {task: float(np.linalg.norm(hand - target)) for task, target in targets.items()}
        return {task: tolerance(d, (0, 0.05), margin=0.05) for task, d in distances.items()}
    return {task: float(make(None).get_reward(env.physics)) for task, make in TASKS[domain].items()}
