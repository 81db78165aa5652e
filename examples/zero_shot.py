"""Solve tasks without finetuning: infer the skill of each task from a few labelled states.

python examples/zero_shot.py [SCALE]      (laptop by default, about ten minutes; smoke takes seconds)
"""

from __future__ import annotations

import sys

import numpy as np

import cic

scale = sys.argv[1] if len(sys.argv) > 1 else "laptop"
run = cic.pretrain("walker", "fb", scale=scale)  # aps, visr, csf and hilp can infer skills too

# The reward of a task labels states of the replay buffer; the skill follows from a regression.
inferred = cic.infer(run.path, states=5_000, episodes=10)
random = cic.evaluate(run.path, episodes=10)  # a random skill in each episode
for task, returns in inferred.returns.items():
    chance = np.mean(random.returns[task])
    print(f"{task}: return with the inferred skill {np.mean(returns):.0f}, with random skills {chance:.0f}")
