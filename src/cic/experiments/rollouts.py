"""Rollouts of a finished run's skills under the mean action, and pictures of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cic.api import load
from cic.core.errors import UserError
from cic.core.types import Array
from cic.learning.agent import Agent
from cic.runs.folder import Run
from cic.training.loading import open_env

Doubles = npt.NDArray[np.float64]
Picture = npt.NDArray[np.uint8]
FRAMES = 8
"""Pictures of a strip."""
GAP = 4


@dataclass(frozen=True)
class SkillRollouts:
    """Episodes of parallel environments, one skill each."""

    physics: Doubles  # (T + 1, N, …): positions and velocities
    returns: dict[str, Doubles]  # task → (N,)


def roll_out(run: Path, skills: Array, steps: int, seeds: Sequence[int]) -> SkillRollouts:
    """Step one environment per skill for `steps` steps, or to the end of the episode."""
    agent = load(run)
    env = open_env(Run(run), num_envs=len(skills), seed=0)
    try:
        obs, _ = env.reset(seed=list(seeds))
        physics, returns = [env.physics()], {task: np.zeros(len(skills)) for task in env.tasks}
        for _ in range(min(steps, env.episode_length or steps)):
            obs, _, terminated, truncated, info = env.step(agent.act(obs, skills))
            physics.append(env.physics())
            for task, rewards in info["rewards"].items():
                returns[task] += rewards
            if (terminated | truncated).any():  # episodes of the built-in domains have one length
                break
        return SkillRollouts(np.stack(physics), returns)
    finally:
        env.close()


def skills_of(agent: Agent, count: int, seed: int = 0) -> Array:
    """Return all one-hot skills, or `count` random ones."""
    space = agent.objective.skills
    if space.kind == "onehot":
        return np.eye(space.dim, dtype=np.float32)[:count]
    return space.sample(count, np.random.default_rng(seed))


def filmstrip(run: Path, skill: Array, steps: int, seed: int = 0, size: int = 120) -> Picture | str:
    """Return pictures of one skill at equal times, side by side, or the reason why there are none."""
    frames = render(run, skill, steps, max(1, steps // FRAMES), seed, size)
    return frames if isinstance(frames, str) else side_by_side(frames[:FRAMES])


def side_by_side(frames: Sequence[Picture]) -> Picture:
    """Join pictures, with white between them."""
    gap = np.full((frames[0].shape[0], GAP, 3), 255, np.uint8)
    return np.concatenate([part for frame in frames for part in (frame, gap)][:-1], axis=1)


def render(run: Path, skill: Array, steps: int, every: int, seed: int = 0, size: int = 120) -> list[Picture] | str:
    """Return a picture of one skill every `every` steps, or the reason why there is none."""
    agent = load(run)
    env = open_env(Run(run), num_envs=1, seed=seed)
    frames = []
    try:
        obs, _ = env.reset(seed=seed)
        for step in range(min(steps, env.episode_length or steps)):
            if step % every == 0:
                frames.append(env.render(0, width=size, height=size))
            obs = env.step(agent.act(obs, skill[None])).obs
    except UserError as error:
        return str(error)
    finally:
        env.close()
    return frames
