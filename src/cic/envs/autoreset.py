"""Gymnasium's automatic resets around a vector environment that has none, for `gymnasium.make_vec`.

NEXT_STEP: the step after an end is the reset of that copy; its action is ignored, its reward 0. SAME_STEP: the step
that ends a copy returns the next episode's first observation, and the last one in `info["final_obs"]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorWrapper

from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs.base import StepArrays, VectorEnv


class Autoreset(VectorWrapper):
    """Resets the copies that ended."""

    env: VectorEnv

    def __init__(self, env: VectorEnv, mode: AutoresetMode) -> None:
        super().__init__(env)
        self.metadata = env.metadata | {"autoreset_mode": mode}
        self._step = self._reset_next if mode == AutoresetMode.NEXT_STEP else self._reset_now
        self._ended = np.zeros(env.num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask")
        self._ended[... if mask is None else mask] = False
        return result

    def step(self, actions: Array) -> StepArrays:
        return self._step(actions)

    def _reset_next(self, actions: Array) -> StepArrays:
        begun = self._ended
        if begun.any():
            actions = self.env._numbers(actions)  # before anything is reset
            first = self.env.reset(options={"reset_mask": begun})[0]
            before = self.env.state()
            result = self.env.step(np.where(begun[:, None], np.float32(0.0), actions))
            # All copies step together; those that have just begun go back to their start.
            after = self.env.state()
            for key, rows in after.items():
                rows[begun] = before[key][begun]
            self.env.restore(after)
            result.obs[begun] = first[begun]
            for array in (*result[1:4], *result.info.get("rewards", {}).values()):
                array[begun] = 0
        else:
            result = self.env.step(actions)
        self._ended = result.terminated | result.truncated
        return result

    def _reset_now(self, actions: Array) -> StepArrays:
        result = self.env.step(actions)
        ended = result.terminated | result.truncated
        if not ended.any():
            return result
        info = result.info
        for i in np.flatnonzero(ended):
            rewards = {task: float(values[i]) for task, values in info.get("rewards", {}).items()}
            last = {"final_obs": result.obs[i].copy(), "final_info": {"rewards": rewards}}
            info = self.env._add_info(info, last, int(i))
        return result._replace(obs=self.env.reset(options={"reset_mask": ended})[0], info=info)


def with_autoreset(env: VectorEnv, mode: AutoresetMode | str) -> VectorEnv | Autoreset:
    """The environment with one of Gymnasium's modes; DISABLED is what it has by itself."""
    try:
        mode = AutoresetMode(mode)
    except ValueError:
        modes = ", ".join(f'"{known.value}"' for known in AutoresetMode)
        raise UserError(f"{env.name}: autoreset_mode must be one of {modes}, not {mode!r}") from None
    return env if mode == AutoresetMode.DISABLED else Autoreset(env, mode)
