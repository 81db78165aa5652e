"""Rollouts of the mean action → returns, and what skills do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cic.core.types import Array
from cic.learning.agent import Agent

BINS = 20


class Environment(Protocol):
    """What a rollout needs of a batched environment."""

    num_envs: int
    tasks: tuple[str, ...]

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]: ...
    def step(self, actions: Array) -> tuple[Array, Array, Any, Any, dict[str, Any]]: ...


@dataclass
class Rollout:
    """One episode per copy."""

    returns: dict[str, npt.NDArray[np.float64]]
    """Per task, and under `reward` what the environment itself paid."""
    lengths: npt.NDArray[np.int64]
    observations: list[Array]
    """Each copy's (T + 1, obs); empty unless asked for."""


def rollout(
    agent: Agent, env: Environment, skill: Array, *, seed: int | list[int], keep: bool = False, limit: int = 100_000
) -> Rollout:
    """Run each copy for one episode under its row of `skill` (N, dim), or all under one skill (dim,)."""
    obs, _ = env.reset(seed=seed)
    skills = np.tile(skill, (env.num_envs, 1)) if np.ndim(skill) == 1 else skill
    returns: dict[str, npt.NDArray[np.float64]] = {}
    lengths = np.zeros(env.num_envs, np.int64)
    alive = np.ones(env.num_envs, np.bool_)
    seen = [[row] for row in obs.copy()] if keep else []
    while alive.any() and lengths.max() < limit:
        obs, reward, terminated, truncated, info = env.step(agent.act(obs, skills))
        for task, value in {"reward": reward, **info.get("rewards", {})}.items():
            total = returns.setdefault(task, np.zeros(env.num_envs))
            total[alive] += value[alive]
        lengths[alive] += 1
        if keep:
            for copy in np.flatnonzero(alive):
                seen[copy].append(obs[copy].copy())
        done = terminated | truncated
        if done.any():
            alive &= ~done
            obs, _ = env.reset(options={"reset_mask": done})
    return Rollout(returns, lengths, [np.stack(rows) for rows in seen])


def evaluate_task(
    agent: Agent, name: str, skill: Array, *, episodes: int, seed: int, timeout: float = 0.0
) -> npt.NDArray[np.float64]:
    """The returns of `episodes` episodes of the task under the mean action; the copies run side by side."""
    from cic import envs

    env = envs.make(name, num_envs=episodes, seed=seed, timeout=timeout)
    try:
        return rollout(agent, env, skill, seed=seed).returns["reward"]
    finally:
        env.close()


def plane_cells(observations: list[Array], plane: tuple[int, ...], side: float) -> int:
    """Distinct cells of the plane, squares of this side, that some observation lies in: how METRA's papers count."""
    positions = np.concatenate(observations)[:, list(plane)]
    return len(np.unique(np.floor(positions / side), axis=0))


def skill_cells(agent: Agent, domain: str, *, count: int = 48, seed: int = 0) -> int | None:
    """Cells of the plane that `count` random skills reach in an episode each, under the mean action, where the domain
    has cells: METRA's measure of what was learned."""
    from cic import envs

    info = envs.domains().get(domain)
    if info is None or info.cell is None:
        return None
    env = envs.make(domain, num_envs=count, seed=seed)
    try:
        skills = agent.objective.skills.sample(count, np.random.default_rng(seed))
        return plane_cells(rollout(agent, env, skills, seed=seed, keep=True).observations, info.plane, info.cell)
    finally:
        env.close()


class Coverage:
    """Which cells of a fixed grid were visited: deterministic, cumulative and cheap.

    The grid has 20 bins along each of the two or three observation entries that the domain names (positions, or pose
    and speed). An environment that names none is projected on two fixed random directions, squashed by tanh.
    """

    def __init__(self, spec: tuple[tuple[int, float, float], ...] | None, obs_dim: int) -> None:
        self.spec = spec
        self._directions = np.random.default_rng(0).standard_normal((obs_dim, 2)) / np.sqrt(obs_dim)
        self.visited = np.zeros(BINS ** (len(spec) if spec else 2), np.bool_)

    def features(self, obs: Array) -> npt.NDArray[np.float64]:
        """(N, 2 or 3), each in [0, 1] inside the grid."""
        if self.spec is None:
            return np.asarray((np.tanh(obs @ self._directions) + 1) / 2)
        index, low, high = (np.array(column) for column in zip(*self.spec, strict=True))
        return np.asarray((obs[:, index.astype(int)] - low) / (high - low))

    def add(self, obs: Array) -> None:
        bins = np.clip(self.features(obs) * BINS, 0, BINS - 1).astype(np.int64)
        self.visited[bins @ (BINS ** np.arange(bins.shape[1]))] = True

    @property
    def cells(self) -> int:
        return int(self.visited.sum())

    @property
    def fraction(self) -> float:
        return float(self.visited.mean())
