"""Zero-shot: infer the skill of a task from labelled states, and skills that steer to goals, without finetuning.

The labelled states are drawn from the pre-training replay, which stores the rewards of every task. If the run has no
replay, the agent takes new steps with random skills.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.envs.catalogue import DOMAINS
from cic.learning.agent import Agent
from cic.learning.objectives import Objective
from cic.learning.replay import Replay
from cic.training.evaluation import rollout

Arrays = dict[str, npt.NDArray[Any]]
FRESH_COPIES = 8


@dataclass(frozen=True)
class Labelled:
    """States and the reward of each task for reaching them."""

    next_obs: Array  # (N, obs)
    rewards: dict[str, Array]  # task → (N, 1)


def require_inference(agent: Agent, count: int, name: str) -> None:
    if type(agent.objective).infer_skill is Objective.infer_skill:
        raise UserError(f"{name} cannot infer a skill from rewards: choose a run of aps, visr, csf, fb, hilp or steer")
    if count < 1:
        raise UserError(f"states must be at least 1, not {count}")


def replayed_states(replay: Arrays, tasks: tuple[str, ...], count: int, seed: int) -> Labelled | None:
    """Return up to `count` distinct steps of a checkpoint's replay, or None if it holds no step."""
    episodes = list(Replay.load(replay).episodes(tasks, partial=True))
    if not any(len(episode) for episode in episodes):
        return None
    next_obs = np.concatenate([episode.observation[1:] for episode in episodes])
    chosen = np.random.default_rng(seed).permutation(len(next_obs))[:count]
    rewards = {task: np.concatenate([episode.task_rewards[task] for episode in episodes]) for task in tasks}
    return Labelled(next_obs[chosen], {task: reward[chosen, None] for task, reward in rewards.items()})


def fresh_states(agent: Agent, env: VectorEnv, count: int, seed: int) -> Labelled:
    """Take `count` steps with exploration noise; each environment draws a random skill per episode."""
    rng = np.random.default_rng(seed)
    obs, _ = env.reset(seed=seed)
    skills = agent.objective.skills.sample(env.num_envs, rng)
    seen: list[Array] = []
    rewards_of: list[Mapping[str, Array]] = []
    while len(seen) * env.num_envs < count:
        obs, _, terminated, truncated, info = env.step(agent.act(obs, skills, explore=True))
        seen.append(obs.copy())
        rewards_of.append(info["rewards"])
        done = terminated | truncated
        if done.any():
            skills[done] = agent.objective.skills.sample(int(done.sum()), rng)
            obs, _ = env.reset(options={"reset_mask": done})
    rewards = {task: np.concatenate([step[task] for step in rewards_of])[:count, None] for task in env.tasks}
    return Labelled(np.concatenate(seen)[:count], rewards)


def infer_skill(agent: Agent, labelled: Labelled, task: str) -> Array:
    """Infer the skill of a task."""
    reward = labelled.rewards[task]
    if np.ptp(reward) == 0:
        raise UserError(
            f"no skill can be inferred: the reward of {task} is {reward[0, 0]:g} at all {len(reward)} labelled states; "
            "label more states"
        )
    rewards = torch.from_numpy(np.ascontiguousarray(reward)).to(agent.device)
    skill = agent.objective.infer_skill(agent.features(labelled.next_obs), rewards)
    if skill is None or not bool(torch.isfinite(skill).all()):
        raise UserError(
            f"no skill can be inferred from the rewards of {task} at {len(reward)} labelled states: label more of them"
        )
    return np.asarray(skill.cpu().numpy(), np.float32)


# ---- goals -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reached:
    """The position of each goal, and the smallest and the last distance of the agent to it."""

    goals: npt.NDArray[np.float64]  # (N, axes)
    nearest: npt.NDArray[np.float64]  # (N,)
    last: npt.NDArray[np.float64]  # (N,)
    radius: float
    """The distance within which a goal counts as reached."""


def reach_goals(agent: Agent, env: VectorEnv, seed: int) -> Reached:
    """Run one episode per environment, each to its own goal; at each step, the skill is inferred from state and goal.

    Goals are uniform over the bounds of the domain's plane. A goal is the first observation of the environment with
    the plane's entries replaced; it is reached within 3 cells (as in CSF), or a twentieth of the bounds' width.
    """
    info = DOMAINS.get(env.domain)
    if agent.spaces.images:
        raise UserError(
            f"goals are positions in the state, but this agent observes images: choose a run of {env.domain}"
        )
    if info is None or not info.plane:
        known = ", ".join(name for name, domain in DOMAINS.items() if domain.plane)
        raise UserError(f"{env.name} has no plane for goals: choose a run in {known}")
    bounds = {quantity.entries[0]: (quantity.low, quantity.high) for quantity in info.coverage}
    axes, rng = list(info.plane), np.random.default_rng(seed)
    low, high = np.array([bounds[axis] for axis in axes]).T
    goals = rng.uniform(low, high, (env.num_envs, len(axes)))
    radius = 3 * info.cell if info.cell else float((high - low).max() / 20)
    obs, _ = env.reset(seed=seed)
    wanted = obs.copy()
    wanted[:, axes] = goals
    steer = _Steering(agent, wanted)
    seen = rollout(steer, env, np.zeros((env.num_envs, 0), np.float32), seed=seed, keep=True)  # type: ignore[arg-type]
    apart = [np.linalg.norm(path[:, axes] - goal, axis=1) for path, goal in zip(seen.observations, goals, strict=True)]
    nearest, last = (np.array([pick(way) for way in apart]) for pick in (np.min, lambda way: way[-1]))
    return Reached(goals, nearest, last, radius)


class _Steering:
    """An agent that acts with the skills towards its goals and ignores the given skill."""

    def __init__(self, agent: Agent, wanted: Array) -> None:
        self.agent, self.wanted = agent, agent.features(wanted)

    def act(self, obs: Array, skill: Array) -> Array:
        skills = self.agent.objective.goal_skill(self.agent.features(obs), self.wanted)
        if skills is None:
            raise UserError("this method has no skill for a goal: choose a run of metra, lsd, csf, fb or hilp")
        return self.agent.act(obs, skills.cpu().numpy())
