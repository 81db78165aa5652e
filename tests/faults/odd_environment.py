"""An environment with exact state that misbehaves at one step."""

from __future__ import annotations

import contextlib
import time
from typing import Any, ClassVar

import gymnasium
import numpy as np

from cic import envs


class Odd(gymnasium.Env[Any, Any]):
    """A walk on a line with episodes of 9 steps. At step `at` it does what `how` names."""

    WAYS: ClassVar[tuple[str, ...]] = (
        *("raises", "four", "dict", "text", "nan", "huge", "shape"),
        *("array reward", "nan reward", "huge reward", "ends"),
    )
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, how: str, at: int) -> None:
        self.how, self.at, self.state = how, at, np.zeros(3)

    def get_state(self) -> dict[str, Any]:
        return {"state": self.state}

    def set_state(self, state: dict[str, Any]) -> None:
        self.state = np.array(state["state"])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state[:2] = 0
        return self.state[:2].copy(), {}

    def step(self, action: Any) -> Any:
        self.state += [0.1 * float(action[0]), 1, 1]
        obs, reward, over = self.state[:2].copy(), float(self.state[0]), bool(self.state[1] >= 9)
        if self.state[2] != self.at or self.how == "well":
            return obs, reward, False, over, {}
        if self.how == "raises":
            raise RuntimeError("the motor\nis broken")
        if self.how.startswith("hangs"):
            self._hang(stubborn="holds on" in self.how)
        odd: dict[str, Any] = {
            "four": (obs, reward, over, {}),
            "dict": ({"obs": obs}, reward, False, over, {}),
            "text": ("left", reward, False, over, {}),
            "nan": (obs * np.nan, reward, False, over, {}),
            "huge": (obs + 3e38, reward, False, over, {}),
            "shape": (np.zeros(3), reward, False, over, {}),
            "array reward": (obs, np.zeros(2), False, over, {}),
            "nan reward": (obs, float("nan"), False, over, {}),
            "huge reward": (obs, 3e30, False, over, {}),
            "ends": (obs, reward, "no", over, {}),
        }
        return odd[self.how]

    @staticmethod
    def _hang(*, stubborn: bool) -> None:
        print("hangs", flush=True)
        while True:
            try:
                time.sleep(100)
            except Exception:
                if not stubborn:
                    raise


def register(how: str, at: int) -> None:
    with contextlib.suppress(KeyError):
        envs.registry._OWN.pop("odd")
    envs.register_env("odd", lambda: Odd(how, at))
