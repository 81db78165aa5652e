"""Images as observations of the built-in domains, as in URLB: stacks of rendered images and repeated actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box

from cic.core.errors import UserError
from cic.core.observations import Part, parts_of
from cic.core.spaces import Layout
from cic.core.types import Array
from cic.envs.base import State, StepArrays, VectorEnv
from cic.envs.bodies import Poses

SMALLEST, LARGEST = 20, 512
CAMERAS: dict[str, int] = {"quadruped": 2}
"""URLB's camera of each domain; the first one of the others."""


class PixelEnv(VectorEnv):
    """Parallel environments whose observation is a stack of images (frames, size, size, 3) of the last steps.

    The first stack of an episode repeats its first image. Rewards are summed over the repetitions of an action.
    """

    def __init__(self, env: VectorEnv, size: int = 84, frames: int = 3, repeat: int = 2) -> None:
        from cic.envs.rendering import require_opengl

        if env.model is None:
            raise UserError(f"{env.name} cannot be rendered: choose walker, quadruped, jaco or point_mass for pixels")
        for name, value, low, high in (
            ("image_size", size, SMALLEST, LARGEST),
            ("frame_stack", frames, 1, 16),
            ("action_repeat", repeat, 1, 100),
        ):
            if not low <= value <= high:
                raise UserError(f"{name} must lie in [{low}, {high}], not {value}")
        require_opengl()  # before the run's folder is created
        self._env, self._size, self._repeat = env, size, repeat
        self._space = Box(0, 255, (frames, size, size, 3), np.uint8)
        self._images = np.zeros((env.num_envs, *self._space.shape), np.uint8)
        pixels = int(np.prod(self._space.shape))
        super().__init__(env.name, pixels, env.spaces.action, env.num_envs, 0.0, 255.0)
        self.domain, self.task, self.tasks, self.coverage = env.domain, env.task, env.tasks, env.coverage
        self.drawing, self.ghosts, self.draws_states = env.drawing, env.ghosts, env.draws_states
        self.episode_length = None if env.episode_length is None else -(-env.episode_length // repeat)
        self._camera = CAMERAS.get(env.domain, 0)
        self._opened: Any = None

    @property
    def layout(self) -> Layout:
        return Layout(self._space, self._env.layout.action)

    def _observed_parts(self) -> tuple[Part, ...]:
        return parts_of(self._space)

    def states(self) -> Array:
        return self._env._observe()

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        self._env.reset(seed=seed, options=options)
        for index in np.flatnonzero(self._reset_mask(options)):
            self._images[index] = self._image(int(index))
        return self._observe(), {}

    def step(self, actions: Array) -> StepArrays:
        result = self._env.step(actions)
        reward, rewards = result.reward.copy(), {task: value.copy() for task, value in result.info["rewards"].items()}
        for _ in range(self._repeat - 1):
            if (result.terminated | result.truncated).any():
                break
            result = self._env.step(actions)
            reward += result.reward
            for task, value in result.info["rewards"].items():
                rewards[task] += value
        self._images[:, :-1] = self._images[:, 1:]
        for index in range(self.num_envs):
            self._images[index, -1] = self._image(index)
        return result._replace(obs=self._observe(), reward=reward, info={"rewards": rewards})

    def _image(self, index: int) -> npt.NDArray[np.uint8]:
        from cic.envs.rendering import Renderer

        if self._opened is None:
            self._opened = Renderer(self._env.model, self._size, self._size, self._camera, plain=True)
        picture: npt.NDArray[np.uint8] = self._opened.picture(self._env.physics()[index])
        return picture

    def _observe(self) -> Array:
        return self._images.reshape(self.num_envs, -1).astype(np.float32)

    def _reseed(self, index: int, seed: int) -> None:
        self._env._reseed(index, seed)

    def _begin(self, index: int) -> None:
        self._env._begin(index)

    def state(self) -> State:
        return {"images": self._images.copy()} | {f"env/{key}": value for key, value in self._env.state().items()}

    def restore(self, state: State) -> None:
        self._check_state(state, {"images": self._images})
        self._env.restore({key.removeprefix("env/"): value for key, value in state.items() if key != "images"})
        self._images[:] = state["images"]

    # ---- the environment behind the images ---------------------------------------------------------------------

    @property
    def model(self) -> Any:
        return self._env.model

    @property
    def step_seconds(self) -> float:
        return self._repeat * self._env.step_seconds

    def physics(self) -> npt.NDArray[np.float64]:
        return self._env.physics()

    def poses(self, index: int = 0) -> Poses:
        return self._env.poses(index)

    def push(self, velocity: Any, index: int = 0) -> None:
        self._env.push(velocity, index)

    def render(self, index: int = 0, width: int = 320, height: int = 240) -> npt.NDArray[np.uint8]:  # type: ignore[override]
        return self._env.render(index, width, height)

    def draw(
        self, states: Sequence[npt.NDArray[np.float64]], width: int, height: int, *, plain: bool = False
    ) -> npt.NDArray[np.uint8]:
        return self._env.draw(states, width, height, plain=plain)

    def close_extras(self, **kwargs: Any) -> None:
        if self._opened is not None:
            self._opened.close()
        self._env.close()
