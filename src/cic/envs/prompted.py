"""An environment whose reward is a formula of its named quantities: `"walker => speed * upright"`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.types import Array
from cic.envs.base import StepArrays, VectorEnv

Floats = npt.NDArray[np.float64]


class PromptedEnv:
    """A vector environment with another reward. It behaves like an environment of the user's, without named tasks."""

    task: str | None = None
    tasks: tuple[str, ...] = ()

    def __init__(self, env: VectorEnv, name: str, reward: Callable[[Array], Floats]) -> None:
        self.env, self.name, self._reward = env, name, reward

    def step(self, actions: Array) -> StepArrays:
        obs, _, terminated, truncated, info = self.env.step(actions)
        others = {key: value for key, value in info.items() if key != "rewards"}
        return StepArrays(obs, self._reward(obs).astype(np.float32), terminated, truncated, others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)
