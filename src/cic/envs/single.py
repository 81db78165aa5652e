"""What `gymnasium.make("cic/walker-run-v0")` and `gymnasium.make_vec` return."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs.autoreset import Autoreset, with_autoreset
from cic.envs.base import VectorEnv
from cic.envs.registry import make


class SingleEnv(gymnasium.Env[Array, Array]):
    """A vector environment with one copy, without its batch axis."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(self, name: str, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UserError(f'{name}: render_mode must be "rgb_array" or None, not {render_mode!r}')
        self.render_mode = render_mode
        self.vector = make(name)
        self.observation_space = self.vector.single_observation_space
        self.action_space = self.vector.single_action_space
        self._seeded = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        obs, info = self.vector.reset(seed=seed)
        return obs[0], info

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.vector.step(np.asarray(action)[None])
        rewards = {task: float(value[0]) for task, value in info.get("rewards", {}).items()}
        return obs[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), {"rewards": rewards}

    def render(self) -> npt.NDArray[np.uint8] | None:
        return self.vector.render() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        self.vector.close()


def make_vector(
    name: str,
    num_envs: int = 1,
    max_episode_steps: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
) -> VectorEnv | Autoreset:
    """`cic.envs.make`, as Gymnasium calls it, and with the automatic reset that is the rule there."""
    env = make(name, num_envs, seed, threads)
    if max_episode_steps not in (None, env.episode_length):
        env.close()
        raise UserError(f"{name}: episodes last {env.episode_length} steps, max_episode_steps cannot change that")
    return with_autoreset(env, autoreset_mode)
