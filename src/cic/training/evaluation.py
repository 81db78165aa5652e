"""Rollouts with the mean action: returns, trajectories and state coverage."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cic.core.types import Array
from cic.envs import quantities
from cic.envs.catalogue import Quantity
from cic.learning.agent import Agent
from cic.learning.replay import Replay
from cic.training.checkpoint_checks import need, require_like

LONGEST = 10_000
"""Steps after which an evaluation episode without a time limit is stopped."""
BINS = 20
"""Cells along each random direction, for environments without named quantities."""


class Environment(Protocol):
    """The part of a vector environment that a rollout uses."""

    num_envs: int
    tasks: tuple[str, ...]

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]: ...
    def step(self, actions: Array) -> tuple[Array, Array, Any, Any, dict[str, Any]]: ...
    def physics(self) -> npt.NDArray[np.float64]: ...


@dataclass
class Rollout:
    """One episode of each parallel environment."""

    returns: dict[str, npt.NDArray[np.float64]]
    """Returns per task; `reward` is the environment's own reward."""
    lengths: npt.NDArray[np.int64]
    observations: list[Array]
    """Observations (T + 1, obs) of each environment; empty unless requested."""
    physics: list[npt.NDArray[np.float64]]
    """States (T + 1, state) of `physics()` of each environment; empty unless requested."""
    rewards: dict[str, npt.NDArray[np.float64]]
    """Rewards (T, N) per task, zero after the end of an episode; empty unless requested."""


def rollout(
    agent: Agent,
    env: Environment,
    skill: Array,
    *,
    seed: int | list[int],
    keep: bool = False,
    watch: bool = False,
    limit: int | None = None,
    longest: int = LONGEST,
    seconds: float = 0.0,
    at_step: Callable[[int], object] | None = None,
) -> Rollout:
    """Run one episode in each environment with its row of `skill` (N, dim), or with one skill (dim,) for all.

    After `limit` steps it stops. Without a limit, episodes of environments that do not state their length are stopped
    after `longest` steps, with a warning, and all episodes after `seconds`, unless these are 0. With `keep` the
    observations are returned, with `watch` also the physics and the rewards of each step; instead of rendered images,
    the states behind them are returned. `at_step` is called at every step, first with 0, before finished environments
    are reset.
    """
    obs, _ = env.reset(seed=seed)
    skills = np.tile(skill, (env.num_envs, 1)) if np.ndim(skill) == 1 else skill
    returns: dict[str, npt.NDArray[np.float64]] = {}
    rewards: dict[str, list[npt.NDArray[np.float64]]] = {}
    lengths = np.zeros(env.num_envs, np.int64)
    alive = np.ones(env.num_envs, np.bool_)
    seen = [[row] for row in states_of(env, obs).copy()] if keep or watch else []
    states = [[row] for row in env.physics()] if watch else []
    if at_step is not None:
        at_step(0)
    end = max(longest, getattr(env, "episode_length", None) or 0) if limit is None else limit
    deadline = time.monotonic() + (seconds or np.inf)
    while alive.any() and lengths.max() < end and time.monotonic() < deadline:
        obs, reward, terminated, truncated, info = env.step(agent.act(obs, skills))
        for task, value in {"reward": reward, **info.get("rewards", {})}.items():
            total = returns.setdefault(task, np.zeros(env.num_envs))
            total[alive] += value[alive]
            if watch:
                rewards.setdefault(task, []).append(np.where(alive, value, 0.0))
        lengths[alive] += 1
        if seen:
            physics, kept = env.physics() if watch else None, states_of(env, obs)
            for copy in np.flatnonzero(alive):
                seen[copy].append(kept[copy].copy())
                if physics is not None:
                    states[copy].append(physics[copy])
        if at_step is not None:
            at_step(int(lengths.max()))
        done = terminated | truncated
        if done.any():
            alive &= ~done
            obs, _ = env.reset(options={"reset_mask": done})
    if limit is None and alive.any():
        late = lengths.max() < end
        spent = f"{seconds:g} s (step {lengths.max():,})" if late else f"{end:,} steps"
        warnings.warn(
            f"{getattr(env, 'name', 'the environment')}: {alive.sum()} of {len(alive)} evaluation episodes had not "
            f"ended after {spent} and were stopped: wrap the environment in gymnasium.wrappers.TimeLimit, or "
            f"change the setting {'eval_timeout' if late else 'eval_steps'}",
            stacklevel=2,
        )
    return Rollout(
        returns,
        lengths,
        [np.stack(rows) for rows in seen],
        [np.stack(rows) for rows in states],
        {task: np.stack(values) for task, values in rewards.items()},
    )


def states_of(env: Environment, obs: Array) -> Array:
    """The observations, or the states behind images."""
    states: Array | None = env.states() if hasattr(env, "states") else None
    return obs if states is None else states


def evaluate_task(
    agent: Agent,
    name: str,
    skill: Array,
    *,
    episodes: int,
    seed: int,
    timeout: float = 0.0,
    workers: int = 0,
    longest: int = LONGEST,
    seconds: float = 0.0,
) -> npt.NDArray[np.float64]:
    """The returns of `episodes` parallel episodes of the task with the mean action."""
    from cic import envs

    env = envs.make(name, num_envs=episodes, seed=seed, timeout=timeout, workers=min(workers, episodes))
    try:
        return rollout(agent, env, skill, seed=seed, longest=longest, seconds=seconds).returns["reward"]
    finally:
        env.close()


def plane_cells(observations: list[Array], plane: tuple[int, ...], side: float) -> int:
    """Count the distinct cells of the plane, squares of this side, that were visited, as in METRA's papers."""
    positions = np.concatenate(observations)[:, list(plane)]
    return len(np.unique(np.floor(positions / side), axis=0))


def skill_cells(agent: Agent, domain: str, *, count: int = 48, seed: int = 0) -> int | None:
    """Count the cells of the plane that `count` random skills visit in one episode each, as in METRA's papers.

    The skills act with the mean action. Returns None for domains without cells.
    """
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
    """The visited cells of a fixed grid.

    The grid is over the two or three quantities that the domain names (positions, or pose and speed). In other
    environments, it is over two fixed random projections of the observation, squashed by tanh.
    """

    def __init__(self, over: tuple[Quantity, ...] | None, obs_dim: int) -> None:
        self.over = over or ()
        self._bins = np.array([quantity.bins for quantity in self.over] or [BINS, BINS])
        self._directions = np.random.default_rng(0).standard_normal((obs_dim, 2)) / np.sqrt(obs_dim)
        self.visited = np.zeros(int(self._bins.prod()), np.bool_)

    def features(self, obs: Array) -> npt.NDArray[np.float64]:
        """(N, 2 or 3), each in [0, 1] inside the grid."""
        if not self.over:
            return np.asarray((np.tanh(obs @ self._directions) + 1) / 2)
        return np.stack([_share(quantity, obs) for quantity in self.over], axis=1)

    def add(self, obs: Array) -> None:
        bins = np.clip(self.features(obs) * self._bins, 0, self._bins - 1).astype(np.int64)
        self.visited[np.ravel_multi_index(tuple(bins.T[::-1]), tuple(self._bins[::-1]))] = True

    @property
    def cells(self) -> int:
        return int(self.visited.sum())

    @property
    def fraction(self) -> float:
        return float(self.visited.mean())

    @property
    def of(self) -> str:
        """The description of all cells."""
        if not self.over:
            return f"{len(self.visited):,} cells of two random projections of the observation"
        ranges = [f"{q.name} {q.low:g} to {q.high:g} {q.unit}".strip() for q in self.over]
        return f"{len(self.visited):,} cells of {' × '.join(ranges)}"


class CoverageTracker(Coverage):
    """The coverage of all steps of a run so far, read from its replay at every log line.

    With `from_states`, the loop adds the states of every step instead: images do not show them.
    """

    def __init__(
        self, over: tuple[Quantity, ...] | None, obs_dim: int, num_envs: int, *, from_states: bool = False
    ) -> None:
        super().__init__(over, obs_dim)
        self._num_envs, self._counted, self.from_states = num_envs, 0, from_states

    def update(self, replay: Replay, step: int) -> dict[str, float]:
        """Add the steps since the last call; returns the metrics."""
        if step > self._counted:
            if not self.from_states:
                self._add_latest(replay, (step - self._counted) // self._num_envs)
            self._counted = step
        return {"coverage/fraction": self.fraction, "coverage/cells": float(self.cells)}

    def _add_latest(self, replay: Replay, steps: int) -> None:
        latest = replay.latest(steps)
        if not replay.spaces.images:
            self.add(latest)
            return
        for block in np.array_split(latest, max(len(latest) // 256, 1)):
            self.add(block / np.float32(255))

    def state(self) -> dict[str, npt.NDArray[Any]]:
        return {"visited": self.visited, "counted": np.array([self._counted])}

    def restore(self, state: dict[str, npt.NDArray[Any]]) -> None:
        require_like(state, self.state())
        self.visited, self._counted = np.array(state["visited"]), int(state["counted"][0])
        need(self._counted >= 0, "counted must not be negative")


def _share(quantity: Quantity, obs: Array) -> npt.NDArray[np.float64]:
    assert quantity.low is not None
    assert quantity.high is not None
    return (quantities.values(quantity, obs) - quantity.low) / (quantity.high - quantity.low)
