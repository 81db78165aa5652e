"""saturation.py RUN …: which share of a pre-trained walker's actions lies at its bounds, 8 skills for 200 steps."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import cic

COPIES, STEPS = 8, 200


def main(run: Path) -> None:
    agent, env = cic.load(run), cic.envs.make("walker", num_envs=COPIES, seed=0)
    space = agent.objective.skills
    skills = (
        space.sample(COPIES, np.random.default_rng(0)) if space.kind != "none" else np.zeros((COPIES, 0), np.float32)
    )
    obs, _ = env.reset(seed=list(range(COPIES)))
    actions = []
    for _ in range(STEPS):
        actions.append(agent.act(obs, skills))
        obs = env.step(actions[-1])[0]
    size = np.abs(np.stack(actions))
    print(f"{run.name}: {np.mean(size > 0.99):.2f} beyond 0.99, {np.mean(size > 0.99999):.2f} beyond 0.99999")


if __name__ == "__main__":
    for path in sys.argv[1:]:
        main(Path(path))
