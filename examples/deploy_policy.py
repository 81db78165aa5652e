"""Run a trained policy in a Gymnasium environment, then export it for programs without cic.

python examples/deploy_policy.py [FILE]      (seconds; FILE is the exported policy, by default policy.pt2)
"""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium
import numpy as np
import torch

import cic
import cic.envs.gymnasium_ids  # registers cic/walker-run-v0 and others with Gymnasium

agent = cic.load("walker")  # a bundled agent; a run folder works too
agent.skill = agent.objective.skills.sample(1, np.random.default_rng(0))[0]  # a finetuned agent has its skill already

env = gymnasium.make("cic/walker-walk-v0")
observation, _ = env.reset(seed=0)
total, done = 0.0, False
while not done:
    action, _ = agent.predict(observation)
    observation, reward, terminated, truncated, _ = env.step(action)
    total, done = total + float(reward), terminated or truncated
print(f"return {total:.1f}")

# A program that loads this file needs torch and not cic. With format="onnx" it needs only ONNX Runtime.
out = Path(sys.argv[1] if len(sys.argv) > 1 else "policy.pt2")
file, inputs = cic.export_policy("walker", out.with_suffix(""))
policy = torch.export.load(file).module()
rows = {"obs": torch.from_numpy(observation)[None].float(), "skill": torch.from_numpy(agent.skill)[None]}
exported = policy(*(rows[name] for name in inputs))[0].numpy()
print(
    f"{file}: {', '.join(inputs)} to action; largest difference {np.abs(exported - agent.act(observation)).max():.1e}"
)
