"""Any Gymnasium environment with bounded Box or discrete actions. Parallel environments are stepped in turn.

Observations are flattened to float32: numbers, the pixels of uint8 images, one-hot vectors of discrete spaces, and
Dicts and Tuples of these. Actions in [-1, 1] are scaled to the environment's own range, one-hot actions are converted
to its discrete actions. `terminated` and `truncated` are not changed. Every return value of the environment is checked,
because a NaN or a changed shape would otherwise cause an error far from its origin.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt

from cic.core.action_spaces import choices, own_action, size, supported
from cic.core.errors import UserError
from cic.core.observations import Part, parts_of
from cic.core.spaces import Layout, entry_names, flat_bounds, leaves, usable
from cic.core.types import Array
from cic.envs import gym_state
from cic.envs.base import State, StepArrays, VectorEnv
from cic.envs.timeout import Timeout
from cic.envs.user_values import build, check_rewards, description, observation_row, reset_value, step_values

if TYPE_CHECKING:
    from cic.envs.bodies import Poses


class GymEnv(VectorEnv):
    """The user's parallel environments. Their reward has no name: `tasks` is empty and `task` is None."""

    def __init__(
        self,
        name: str,
        factory: Callable[[], Any],
        num_envs: int,
        seed: int,
        timeout: float = 0.0,
        first: int = 0,
    ) -> None:
        """`first` is the number of the first environment in messages and in `state`, if others have the rest."""
        self._timeout, self._first = Timeout(timeout), first
        try:
            self._build_all(name, factory, num_envs)
        except BaseException:
            self._timeout.close()
            raise
        self.domain, self.task, self.tasks, self.coverage = name, None, (), None
        self.episode_length = _episode_length(self._envs[0])
        self.exact_state = gym_state.is_exact(self._envs[0])
        self._pending: list[int | None] = list(self._seeds(seed))  # the seeds of the next resets
        self._obs = np.zeros((self.num_envs, self.spaces.obs), np.float32)
        self._opened: Any = None  # a renderer, and its size
        self._drawn_at = (0, 0)

    def _build_all(self, name: str, factory: Callable[[], Any], num_envs: int) -> None:
        """Make the environments, which must have the same spaces."""
        with self._timeout.limit(f"making {name}"):
            first = build(name, factory, [])
        self._own_spaces = first.observation_space, first.action_space
        observation, ignored = usable(first.observation_space, name)
        if ignored:
            warnings.warn(f"{name}: these keys of the observation are ignored: {', '.join(ignored)}", stacklevel=2)
        self._leaves, self._parts = leaves(observation, name), parts_of(observation, name)
        self._layout = Layout(observation, supported(first.action_space, name))
        obs, action = sum(leaf.size for leaf in self._leaves), size(self._layout.action)
        for count, what in ((obs, "observation"), (action, "action")):
            if not count:
                raise UserError(f"{name}: the {what} space has no entries: add at least one number")
        super().__init__(name, obs, action, num_envs, *flat_bounds(observation), choices(self._layout.action))
        self._envs = [first]
        for index in range(1, self.num_envs):
            with self._timeout.limit(f"making {name}"):
                self._envs.append(build(name, factory, self._envs))
            self._check_spaces(index)

    def _check_spaces(self, index: int) -> None:
        """All environments have the spaces of the first one, and keep them."""
        env = self._envs[index]
        for what, space in zip(("observation", "action"), self._own_spaces, strict=True):
            own = getattr(env, f"{what}_space", None)
            if own is not space and own != space:
                raise UserError(
                    f"{self._where(index)}: its {what}_space is now {own}, not {space}: "
                    "all environments must have the same spaces, at all times"
                )

    def step(self, actions: Array) -> StepArrays:
        actions = self._check_actions(actions)
        reward = np.zeros(self.num_envs, np.float32)
        terminated, truncated = np.zeros((2, self.num_envs), np.bool_)
        for i, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
            self._steps[i] += 1
            with self._naming_errors(i, "step"):
                result = env.step(own_action(self._layout.action, action))
            obs, reward[i], terminated[i], truncated[i] = step_values(result, self._where(i))
            self._obs[i] = self._row(i, obs)
        check_rewards(reward, self.name, self._where, self._first)
        self._over = terminated | truncated
        return StepArrays(self._obs.copy(), reward, terminated, truncated, {})

    def _observed_parts(self) -> tuple[Part, ...]:
        return self._parts

    def _where(self, index: int) -> str:
        return f"{self.name}: environment {self._first + index}, step {self._steps[index]}"

    def _row(self, index: int, obs: Any) -> Array:
        step = int(self._steps[index])
        return observation_row(self._leaves, obs, self._where(index), self._first + index, step, self.name)

    @contextmanager
    def _naming_errors(self, index: int, method: str) -> Iterator[None]:
        """Turn any exception of the environment into a `UserError` that names the environment and the step."""
        what = f"{self._where(index)}: its {method}()"
        try:
            with self._timeout.limit(what):
                yield
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise UserError(f"{what} failed with {description(error)}") from error

    def _reseed(self, index: int, seed: int) -> None:
        self._pending[index] = seed

    def _begin(self, index: int) -> None:
        seed, self._pending[index] = self._pending[index], None
        self._steps[index] = 0
        with self._naming_errors(index, "reset"):
            result = self._envs[index].reset(seed=seed)
        self._check_spaces(index)
        self._obs[index] = self._row(index, reset_value(result, self._where(index)))

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
            with self._naming_errors(i, "get_state"):
                saved = gym_state.save(env)
            state.update({f"env{self._first + i}/{key}": value for key, value in saved.items()})
        return state

    def restore(self, state: State) -> None:
        """Continue bit-exactly if `exact_state`. Otherwise restart running episodes, with their saved generators."""
        self._check_open()
        self._check_state(state, {"steps": self._steps, "over": self._over, "obs": self._obs})
        self._pending = [None if seed < 0 else int(seed) for seed in state["pending"]]
        self._steps[:], self._obs[:] = state["steps"], state["obs"]
        self._over = state["over"].astype(np.bool_)
        for i, env in enumerate(self._envs):
            prefix = f"env{self._first + i}/"
            mine = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
            with self._naming_errors(i, "set_state"):
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
                f"{self._where(index)}: its render() must return (height, width, 3) uint8, not {picture.shape}"
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
        self._close_renderer()
        for index, env in enumerate(self._envs):
            try:
                with self._timeout.limit(f"{self._where(index)}: its close()"):
                    env.close()
            except (Exception, SystemExit) as error:  # the results are complete
                warnings.warn(f"{self._where(index)}: its close() failed with {description(error)}", stacklevel=2)
        self._timeout.close()


def _episode_length(env: gymnasium.Env[Any, Any]) -> int | None:
    length = None if env.spec is None else env.spec.max_episode_steps
    return length if isinstance(length, int) else None
