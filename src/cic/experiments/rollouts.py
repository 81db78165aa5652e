"""Episodes of a finished run's skills under the mean action, and pictures of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cic.api import load
from cic.core.errors import UserError
from cic.core.types import Array
from cic.learning.agent import Agent
from cic.runs.folder import Run
from cic.training.evaluation import Rollout, rollout
from cic.training.loading import open_env

Picture = npt.NDArray[np.uint8]
FRAMES = 8
"""Pictures of a strip."""
_SIZE, _GAP = 120, 4


def play(run: Path, skills: Array, steps: int, seeds: Sequence[int]) -> Rollout:
    """Step one environment per skill for `steps` steps, or to the end of the episode."""
    env = open_env(Run(run), num_envs=len(skills), seed=0)
    try:
        return rollout(load(run), env, skills, seed=list(seeds), watch=True, limit=steps)
    finally:
        env.close()


def render(run: Path, skill: Array, steps: int, every: int) -> list[Picture] | str:
    """Return a picture of one skill every `every` steps, or the reason why there is none."""
    env, frames = open_env(Run(run), num_envs=1, seed=0), list[Picture]()

    def take(step: int) -> None:
        if step < steps and step % every == 0:
            frames.append(env.render(0, width=_SIZE, height=_SIZE))

    try:
        rollout(load(run), env, skill[None], seed=0, limit=steps, at_step=take)
    except UserError as error:
        return str(error)
    finally:
        env.close()
    return frames


def skills_of(agent: Agent, count: int) -> Array:
    """Return all one-hot skills, or `count` random ones."""
    space = agent.objective.skills
    if space.kind == "onehot":
        return np.eye(space.dim, dtype=np.float32)[:count]
    return space.sample(count, np.random.default_rng(0))


def side_by_side(frames: Sequence[Picture]) -> Picture:
    """Join pictures, with white between them."""
    gap = np.full((frames[0].shape[0], _GAP, 3), 255, np.uint8)
    return np.concatenate([part for frame in frames for part in (frame, gap)][:-1], axis=1)
