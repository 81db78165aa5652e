"""The environments that `gymnasium.make("cic/walker-run-v0")` and `gymnasium.make_vec` return."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorWrapper

from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs.base import StepArrays, VectorEnv
from cic.envs.registry import make


class SingleEnv(gymnasium.Env[Array, Array]):
    """A vector environment with `num_envs=1`, without its batch axis."""

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


class SameStepAutoreset(VectorWrapper):
    """Gymnasium's SAME_STEP mode: the step that ends an episode returns the first observation of the next one.

    The last observation of the episode is in `info["final_obs"]`.
    """

    env: VectorEnv

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        self.metadata = env.metadata | {"autoreset_mode": AutoresetMode.SAME_STEP}

    def step(self, actions: Array) -> StepArrays:
        result = self.env.step(actions)
        done = result.terminated | result.truncated
        if not done.any():
            return result
        info = result.info
        for i in np.flatnonzero(done):
            rewards = {task: float(values[i]) for task, values in info.get("rewards", {}).items()}
            last = {"final_obs": result.obs[i].copy(), "final_info": {"rewards": rewards}}
            info = self.env._add_info(info, last, int(i))
        return result._replace(obs=self.env.reset(options={"reset_mask": done})[0], info=info)


def make_vector(
    name: str,
    num_envs: int = 1,
    max_episode_steps: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
) -> VectorEnv | SameStepAutoreset:
    """`cic.envs.make` for `gymnasium.make_vec`, with automatic resets unless `autoreset_mode` is DISABLED."""
    if autoreset_mode not in (AutoresetMode.SAME_STEP, "SameStep", AutoresetMode.DISABLED, "Disabled"):
        raise UserError(
            f'{name}: autoreset_mode must be "SameStep" or "Disabled", not {str(autoreset_mode)!r}; '
            'for other modes add vectorization_mode="sync" and vector_kwargs={"autoreset_mode": …}'
        )
    env = make(name, num_envs, seed, threads)
    if max_episode_steps not in (None, env.episode_length):
        env.close()
        raise UserError(f"{name}: episodes last {env.episode_length} steps, max_episode_steps cannot change that")
    return env if AutoresetMode(autoreset_mode) == AutoresetMode.DISABLED else SameStepAutoreset(env)
