"""dm_env environments (dm_control's, for example) as Gymnasium environments.

An episode that ends with discount 0 is terminated, any other end is a truncation. Seeds reach the `RandomState` of
dm_control's environments; others keep the seed that their factory gave them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict

from cic.core.errors import UserError


class DmEnv(gymnasium.Env[Any, npt.NDArray[Any]]):
    """One dm_env environment."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.action_space = _action_box(env.action_spec())
        self.observation_space = _space(env.observation_spec())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            random = getattr(getattr(self._env, "task", None), "random", getattr(self._env, "random_state", None))
            if isinstance(random, np.random.RandomState):
                random.seed(seed)
        return self._env.reset().observation, {}

    def step(self, action: npt.NDArray[Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        step = self._env.step(action)
        ended = bool(step.last())
        terminated = ended and step.discount == 0.0
        return step.observation, float(step.reward or 0.0), terminated, ended and not terminated, {}

    def close(self) -> None:
        self._env.close()


def _action_box(spec: Any) -> Box:
    if not (hasattr(spec, "minimum") and np.issubdtype(spec.dtype, np.floating)):
        raise UserError(f"actions must be one bounded array of floats, not {spec}")
    low, high = (np.broadcast_to(bound, spec.shape).astype(spec.dtype) for bound in (spec.minimum, spec.maximum))
    return Box(low, high, dtype=spec.dtype)


def _space(spec: Any) -> Box | Dict:
    if isinstance(spec, Mapping):
        return Dict(OrderedDict((key, _space(part)) for key, part in spec.items()))  # a dict would be sorted
    return Box(-np.inf, np.inf, spec.shape, np.float64)
