"""Asking for the state changes nothing, and restoring it continues bit for bit; hypothesis finds the moments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

import cic.envs
from cic.envs.base import VectorEnv
from tests.helpers import steady

STEPS = 30
KINDS = [*cic.envs.domains(), "gymnasium:Hopper-v5", "wanderer"]


class Wanderer(gymnasium.Env[Any, Any]):
    """Goes at random where it is pushed, until it is too far off; offers its state."""

    action_space = Box(-1.0, 1.0, (1,))
    observation_space = Box(-np.inf, np.inf, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=1)
        return self.place.copy(), {}

    def step(self, action: Any) -> Any:
        self.place = self.place + action + self.np_random.normal(size=1)
        return self.place.copy(), float(self.place[0]), bool(abs(self.place[0]) > 4), False, {}

    def get_state(self) -> dict[str, Any]:
        return {"place": self.place}

    def set_state(self, state: dict[str, Any]) -> None:
        self.place = np.array(state["place"])


def make(kind: str, num_envs: int, seed: int) -> VectorEnv:
    if kind == "wanderer":
        cic.envs.register_env("wanderer", Wanderer)
    return cic.envs.make(kind, num_envs, seed)


def start(kind: str, num_envs: int, ages: np.ndarray[Any, Any]) -> VectorEnv:
    """Running episodes; where time ends them, so soon that it happens here: `ages` steps before their end."""
    env = make(kind, num_envs, seed=5)
    env.reset()
    if kind in cic.envs.domains():
        assert env.episode_length is not None
        env.restore(env.state() | {"steps": env.episode_length - ages})
    return env


def trajectory(env: VectorEnv, first: int, asked: set[int], masks: np.ndarray[Any, Any]) -> Iterator[tuple[Any, ...]]:
    """Everything that `step` and `reset` return from step `first` on, as bytes."""
    shape = (STEPS, env.num_envs, env.spaces.action)
    actions = np.random.default_rng(1).uniform(-1.1, 1.1, shape).astype(np.float32)
    for t in range(first, STEPS):
        if t in asked:
            env.state()
        obs, reward, terminated, truncated, info = env.step(actions[t])
        begun = None
        mask = terminated | truncated | masks[t]
        if mask.any():
            if t in asked:
                env.state()
            begun = env.reset(options={"reset_mask": mask})[0]
        arrays = (obs, reward, terminated, truncated, begun, *info.get("rewards", {}).values())
        yield tuple(None if array is None else (array.dtype, array.shape, array.tobytes()) for array in arrays)


@pytest.mark.parametrize("num_envs", [1, 3, 8])
@pytest.mark.parametrize("kind", KINDS)
@settings(steady, max_examples=4)
@given(
    asked=st.sets(st.integers(0, STEPS - 1), min_size=1, max_size=6),
    saved=st.integers(1, STEPS // 2 - 1).map(lambda half: 2 * half - 1),
    seed=st.integers(0, 2**16),
)
def test_states_change_nothing_and_continue_bit_exactly(
    kind: str, num_envs: int, asked: set[int], saved: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ages, masks = rng.integers(1, STEPS, num_envs), rng.random((STEPS, num_envs)) < 0.02
    undisturbed = list(trajectory(start(kind, num_envs, ages), 0, set(), masks))
    assert list(trajectory(start(kind, num_envs, ages), 0, asked, masks)) == undisturbed

    env = start(kind, num_envs, ages)
    before = trajectory(env, 0, set(), masks)
    assert [next(before) for _ in range(saved)] == undisturbed[:saved]
    fresh = make(kind, num_envs, seed=99)
    assert fresh.exact_state
    fresh.restore(env.state())
    assert list(trajectory(fresh, saved, asked, masks)) == undisturbed[saved:]
