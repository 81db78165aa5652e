"""Any Gymnasium environment with bounded Box actions; the parallel environments are stepped one after the other.

Box observations, and Dicts and Tuples of them, are flattened to float32. Actions in [-1, 1] are scaled to the
environment's own range. `terminated` and `truncated` are not changed. Every return value of the environment is
checked, because a NaN or a changed shape would otherwise cause an error far from its origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.spaces import Layout, bounded_box, entry_names, flat_bounds, flatten, kind, leaves, scale_action
from cic.core.types import Array
from cic.envs import gym_state
from cic.envs.base import State, StepArrays, VectorEnv
from cic.envs.timeout import Timeout

if TYPE_CHECKING:
    from cic.envs.bodies import Poses

LARGEST = 1e9
"""The largest observation and reward: its fourth power, which losses and Adam compute, still is a float32."""
_TOO_LARGE = f"larger than {LARGEST:g}, beyond which float32 cannot learn: rescale it in the environment"


class GymEnv(VectorEnv):
    """Parallel environments of the user's. Their reward has no name: `tasks` is empty and `task` is None."""

    def __init__(self, name: str, factory: Callable[[], Any], num_envs: int, seed: int, timeout: float = 0.0) -> None:
        first = _build(name, factory)
        self._leaves = leaves(first.observation_space, name)
        self._layout = Layout(first.observation_space, bounded_box(first.action_space, name))
        obs, action = sum(leaf.size for leaf in self._leaves), int(np.prod(self._layout.action.shape))
        for size, what in ((obs, "observation"), (action, "action")):
            if not size:
                raise UserError(f"{name}: the {what} space has no entries: add at least one number")
        super().__init__(name, obs, action, num_envs, *flat_bounds(first.observation_space))
        self._envs = [first, *(_build(name, factory) for _ in range(self.num_envs - 1))]
        self.domain, self.task, self.tasks, self.coverage = name, None, (), None
        self.episode_length = None if first.spec is None else first.spec.max_episode_steps
        self.exact_state = gym_state.is_exact(first)
        self._pending: list[int | None] = list(self._seeds(seed))  # the seeds of the next resets
        self._obs = np.zeros((self.num_envs, self.single_observation_space.shape[0]), np.float32)  # type: ignore[index]
        self._opened: Any = None  # a renderer, and its size
        self._drawn_at = (0, 0)
        self._timeout = Timeout(timeout)

    def step(self, actions: Array) -> StepArrays:
        actions = self._check_actions(actions)
        reward = np.zeros(self.num_envs, np.float32)
        terminated, truncated = np.zeros((2, self.num_envs), np.bool_)
        for i, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
            self._steps[i] += 1
            with self._naming_errors(i, "step"):
                result = env.step(scale_action(self._layout.action, action))
            obs, reward[i], terminated[i], truncated[i] = self._checked(i, result)
            self._obs[i] = self._flatten(i, obs)
        if not np.isfinite(reward).all():
            raise UserError(
                f"{self.name}: the reward of environment {int(np.argmin(np.isfinite(reward)))} is not finite"
            )
        if np.abs(reward).max() > LARGEST:
            index = int(np.argmax(np.abs(reward)))
            raise UserError(f"{self._where(index)}: the reward is {reward[index]:g}, {_TOO_LARGE}")
        self._over = terminated | truncated
        return StepArrays(self._obs.copy(), reward, terminated, truncated, {})

    def _where(self, index: int) -> str:
        return f"{self.name}: environment {index}, step {self._steps[index]}"

    def _checked(self, index: int, result: Any) -> tuple[Any, float, bool, bool]:
        """Check the return value of `step`; return it without `info`."""
        if not isinstance(result, tuple) or len(result) != 5:
            wanted = "(obs, reward, terminated, truncated, info)"
            raise UserError(f"{self._where(index)}: step() must return {wanted}, not {kind(result)}")
        obs, reward, terminated, truncated, _ = result
        if np.ndim(reward) or not np.issubdtype(np.asarray(reward).dtype, np.number):
            raise UserError(f"{self._where(index)}: the reward must be one number, not {kind(reward)}")
        for end in (terminated, truncated):
            if np.ndim(end) or np.asarray(end).dtype.kind not in "bi":
                message = f"{self._where(index)}: terminated and truncated must be True or False, not {kind(end)}"
                raise UserError(message)
        return obs, float(reward), bool(terminated), bool(truncated)

    def _flatten(self, index: int, obs: Any) -> Array:
        row = flatten(self._leaves, obs, self._where(index))
        if not np.isfinite(row).all():
            raise UserError(
                f"{self.name}: the observation of environment {index} is not finite at step {self._steps[index]}"
            )
        if np.abs(row).max() > LARGEST:
            entry = int(np.argmax(np.abs(row)))
            raise UserError(f"{self._where(index)}: entry {entry} of the observation is {row[entry]:g}, {_TOO_LARGE}")
        return row

    @contextmanager
    def _naming_errors(self, index: int, method: str) -> Iterator[None]:
        """Turn any exception of the environment into a `UserError` that names the environment and the step."""
        what = f"{self._where(index)}: its {method}()"
        try:
            with self._timeout.limit(what):
                yield
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{what} failed with {_description(error)}") from error

    def _reseed(self, index: int, seed: int) -> None:
        self._pending[index] = seed

    def _begin(self, index: int) -> None:
        seed, self._pending[index] = self._pending[index], None
        self._steps[index] = 0
        with self._naming_errors(index, "reset"):
            result = self._envs[index].reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise UserError(f"{self._where(index)}: reset() must return (obs, info), not {kind(result)}")
        self._obs[index] = self._flatten(index, result[0])

    def _observe(self) -> Array:
        return self._obs.copy()

    def physics(self) -> npt.NDArray[np.float64]:
        """The state of MuJoCo environments; empty for others."""
        found = [gym_state.mujoco_physics(env) for env in self._envs]
        rows = [np.concatenate([f[1].qpos, f[1].qvel, f[1].act]) for f in found if f is not None]
        return np.array(rows) if len(rows) == self.num_envs else super().physics()

    @property
    def model(self) -> Any:
        physics = gym_state.mujoco_physics(self._envs[0])
        return None if physics is None else physics[0]

    @property
    def step_seconds(self) -> float:
        own = getattr(self._envs[0].unwrapped, "dt", None)
        return super().step_seconds if self.model is None or not isinstance(own, float) else own

    def poses(self, index: int = 0) -> Poses:
        physics = gym_state.mujoco_physics(self._envs[index])
        if physics is None:
            return super().poses(index)
        from cic.envs.bodies import Poses

        return Poses(physics[1].geom_xpos.copy(), physics[1].geom_xmat.reshape(-1, 3, 3).copy())

    def push(self, velocity: Any, index: int = 0) -> None:
        physics = gym_state.mujoco_physics(self._envs[index])
        if physics is None:
            return super().push(velocity, index)
        import copy

        from cic.envs.bodies import shove

        model, data = physics
        data.qvel[:] += shove(model, copy.copy(data), np.asarray(velocity, np.float64))
        return None

    def state(self) -> State:
        state: State = {
            "steps": self._steps.copy(),
            "over": self._over.astype(np.int64),
            "obs": self._obs.copy(),
            "pending": np.array([-1 if seed is None else seed for seed in self._pending], np.int64),
        }
        for i, env in enumerate(self._envs):
            state.update({f"env{i}/{key}": value for key, value in gym_state.save(env).items()})
        return state

    def restore(self, state: State) -> None:
        """Continue bit-exactly if `exact_state`. Otherwise restart running episodes, with their saved generators."""
        self._check_open()
        self._check_state(state, {"steps": self._steps, "over": self._over, "obs": self._obs})
        self._pending = [None if seed < 0 else int(seed) for seed in state["pending"]]
        self._steps[:], self._obs[:] = state["steps"], state["obs"]
        self._over = state["over"].astype(np.bool_)
        for i, env in enumerate(self._envs):
            prefix = f"env{i}/"
            mine = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
            gym_state.load(env, mine)
            if not self.exact_state and not self._over[i]:
                self._begin(i)

    def render(self, index: int = 0, width: int = 320, height: int = 240) -> npt.NDArray[np.uint8]:  # type: ignore[override]
        self._check_open()
        if self._envs[index].render_mode == "rgb_array":
            return self._own_picture(index)
        physics = gym_state.mujoco_physics(self._envs[index])
        if physics is None:
            raise UserError(f'{self.name}: make it with render_mode="rgb_array" to get pictures')
        if self._drawn_at != (width, height):
            from cic.envs.rendering import Renderer

            self._close_renderer()
            self._opened, self._drawn_at = Renderer(physics[0], width, height), (width, height)
        return self._opened.picture(physics[1].qpos)  # type: ignore[no-any-return]

    def _close_renderer(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _own_picture(self, index: int) -> npt.NDArray[np.uint8]:
        """An image by the environment's own renderer, in its own size."""
        with self._naming_errors(index, "render"), self._opengl(index):
            picture = np.asarray(self._envs[index].render())
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            raise UserError(
                f"{self._where(index)}: its render() must give (height, width, 3) uint8, not {picture.shape}"
            )
        return picture

    def _opengl(self, index: int) -> AbstractContextManager[None]:
        if gym_state.mujoco_physics(self._envs[index]) is None:
            return nullcontext()
        from cic.envs.rendering import gymnasium_rendering

        return gymnasium_rendering()

    def entry_names(self) -> list[str]:
        return entry_names(self._layout.observation)

    @property
    def layout(self) -> Layout:
        return self._layout

    def close_extras(self, **kwargs: Any) -> None:
        self._timeout.close()
        self._close_renderer()
        for env in self._envs:
            env.close()


def _build(name: str, factory: Callable[[], Any]) -> gymnasium.Env[Any, Any]:
    try:
        env = factory()
    except Exception as error:
        raise UserError(f'making "{name}" failed with {_description(error)}') from error
    if not isinstance(env, gymnasium.Env) and hasattr(env, "action_spec") and hasattr(env, "observation_spec"):
        from cic.envs.dm_env import DmEnv

        env = DmEnv(env)
    if not isinstance(env, gymnasium.Env):
        raise UserError(f'the factory of "{name}" must return a gymnasium.Env or a dm_env.Environment, not {type(env)}')
    return env


def _description(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
