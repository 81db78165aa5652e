"""The intrinsic reward of a method at the end of its pre-training, on its own data and on RND's data.

python results/main-laptop/own_rewards.py RUNS DOMAIN SEED METHOD …   # writes own_rewards.jsonl

Written for the code at commit 1c94153: it uses internals of training.

Rewards of batches of which half are the latter half of the method's replay and half that of RND. Of methods whose
reward asks for a skill only those make sense here whose reward does not depend on it (CIC at scale `laptop`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file

from cic.core.types import Batch
from cic.runs.folder import Run
from cic.training.loading import load_agent
from cic.training.phases import config_of

LOG = Path(__file__).with_name("own_rewards.jsonl")
HALF, BATCHES, FIRST = 128, 40, 10  # the first ones fill ProtoRL's queue
Part = tuple[np.ndarray, ...]


def steps(run: Path) -> dict[str, np.ndarray]:
    replay = load_file(max((run / "checkpoints").iterdir()) / "replay.safetensors")
    half = replay["obs"].shape[1] // 2
    return {name: replay[name][:, half:] for name in ("obs", "action", "task_rewards", "skill_id")}


def draw(seen: dict[str, np.ndarray], nstep: int, rng: np.random.Generator) -> Part:
    """Observations, actions, the observations `nstep` later, and the reward for standing there; inside one episode."""
    copies, count = seen["skill_id"].shape
    copy, at = rng.integers(0, copies, 4 * HALF), rng.integers(0, count - nstep, 4 * HALF)
    inside = (seen["skill_id"][copy[:, None], at[:, None] + np.arange(nstep)] >= 0).all(axis=1)
    copy, at = copy[inside][:HALF], at[inside][:HALF]
    later = at + nstep
    return (
        seen["obs"][copy, at],
        seen["action"][copy, at],
        seen["obs"][copy, later],
        seen["task_rewards"][copy, later - 1, 0],  # of the step that led there; stand comes first
    )


def own_rewards(own: Path, other: Path) -> dict[str, float]:
    config = config_of(Run(own))
    agent, _ = load_agent(Run(own), config, None)
    objective, seen, rich = agent.objective, steps(own), steps(other)
    nstep = objective.needs.nstep or config.learning.nstep
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    rewards, stood = [], []
    for _ in range(BATCHES):
        parts = zip(draw(seen, nstep, rng), draw(rich, nstep, rng), strict=True)
        obs, action, later, stand = (torch.as_tensor(np.concatenate(part)) for part in parts)
        column = torch.ones(len(obs), 1)
        batch = Batch(obs, action, 0 * column, column, later, torch.zeros(len(obs), objective.skills.dim))
        with torch.no_grad():
            rewards.append(objective.reward(objective.prepare(batch, generator))[:, 0].numpy())
        stood.append(stand.numpy())
    reward, posture = np.stack(rewards[FIRST:]), np.stack(stood[FIRST:])
    return {
        "own": float(reward[:, :HALF].mean()),
        "rnd": float(reward[:, HALF:].mean()),
        "spread": float(reward.std() / reward.mean()),
        "upright": float(reward[posture > 0.9].mean() / reward[posture < 0.1].mean()),
    }


if __name__ == "__main__":
    runs, domain, seed, *methods = sys.argv[1:]
    torch.set_num_threads(1)

    def pretraining(method: str) -> Path:
        return next(Path(runs).glob(f"pretrain-{method}-{domain}-s{seed}-*"))

    with LOG.open("a") as file:
        for method in methods:
            found = {
                name: round(value, 3) for name, value in own_rewards(pretraining(method), pretraining("rnd")).items()
            }
            file.write(json.dumps({"objective": method, "domain": domain, "seed": int(seed), **found}) + "\n")
