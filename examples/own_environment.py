"""Discover skills in a Gymnasium environment of your own, and adapt one to its reward.

python examples/own_environment.py [SCALE]      (laptop by default, a few minutes; smoke takes seconds)
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np

import cic


class Boat(gymnasium.Env):
    """A boat with two motors on a square lake. The reward is 1 near a buoy and 0 elsewhere."""

    observation_space = gymnasium.spaces.Box(-2, 2, (4,), np.float32)  # position, velocity
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)  # thrust
    buoy = np.array([0.7, 0.7])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.position, self.velocity = self.np_random.uniform(-0.1, 0.1, 2), np.zeros(2)
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.velocity = 0.9 * self.velocity + 0.05 * np.asarray(action)
        self.position = np.clip(self.position + 0.05 * self.velocity, -1, 1)
        reward = float(np.linalg.norm(self.position - self.buoy) < 0.2)
        return self._observation(), reward, False, False, {}

    def _observation(self) -> np.ndarray:
        return np.concatenate([self.position, self.velocity]).astype(np.float32)


cic.register_env("boat", lambda: gymnasium.wrappers.TimeLimit(Boat(), max_episode_steps=200))

scale = sys.argv[1] if len(sys.argv) > 1 else "laptop"
skills = cic.pretrain("boat", "cic", scale=scale, reward="discriminator", skill_dim=16, skill_every=100)
tuned = cic.finetune(skills.path, "boat")
scratch = cic.finetune(None, "boat", scale=scale)
print(f"return with pre-training {tuned.result['return']:.1f}, from scratch {scratch.result['return']:.1f}")
