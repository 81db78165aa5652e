"""Name two quantities of your own environment, pre-train without a reward, then command them: 10 seconds on a core."""

import sys

import gymnasium
import numpy as np

import cic


class Boat(gymnasium.Env):
    """A boat with two motors on a square lake; it observes its position and its velocity."""

    observation_space = gymnasium.spaces.Box(-2, 2, (4,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.velocity = self.np_random.uniform(-0.1, 0.1, 2), np.zeros(2)
        return self._observation(), {}

    def step(self, action):
        self.velocity = 0.8 * self.velocity + 0.2 * np.asarray(action)
        self.position = np.clip(self.position + 0.1 * self.velocity, -1, 1)
        return self._observation(), 0.0, False, False, {}

    def _observation(self):
        return np.concatenate([self.position, self.velocity]).astype(np.float32)


cic.register_env(
    "boat",
    lambda: gymnasium.wrappers.TimeLimit(Boat(), max_episode_steps=100),
    quantities={
        "east": cic.NamedQuantity("east", "obs[0]", "km", scale=1.0),  # a formula of the observation
        "speed": lambda observation: np.linalg.norm(observation[2:]),  # or a function of it
    },
)
steps = 600 if "smoke" in sys.argv else 6_000
run = cic.pretrain("boat", "steer", scale="smoke", steps=steps, skill_every=50, seed=1, quiet=True)
agent = cic.load(run.path)
env = cic.envs.make("boat", num_envs=4)
for prompt in ("east", "-east", "speed", "-speed"):
    agent.prompt(prompt)  # the agent uses this skill from now on
    observation, _ = env.reset(seed=0)
    for _ in range(80):
        observation = env.step(agent.act(observation)).obs
    east, speed = observation[:, 0].mean(), observation[:, -1].mean()
    print(f"{prompt:7} east {east:+.2f} km, speed {speed:.2f}")
