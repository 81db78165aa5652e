"""Correlation of the predicted rewards of relabelled replay with the true task rewards.

python results/main-laptop/regressed.py RUNS DOMAIN METHOD …   # of finished runs, with their replays and checkpoints

Written for the code at commit 1c94153: it reads that version's checkpoints.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from cic.envs.catalogue import DOMAINS
from cic.training.relabelled_replay import LATEST


def correlation(finetuned: Path, pretrained: Path) -> float:
    replay = load_file(max((pretrained / "checkpoints").iterdir()) / "replay.safetensors")
    domain, _, task = json.loads((finetuned / "config.json").read_text())["config"]["task"].partition("-")
    copies, filled = replay["obs"].shape[:2]
    paid, inside = [], []
    for copy, written in enumerate(map(int, replay["written"])):
        order = np.arange(max(written - min(filled, -(-LATEST // copies)), 0), written) % filled
        paid.append(replay["task_rewards"][copy, order, DOMAINS[domain].tasks.index(task)])
        inside.append((replay["skill_id"][copy, order] >= 0) & (order != order[-1]))
    told = load_file(max((finetuned / "checkpoints").iterdir()) / "phase.safetensors")["prior_reward"]
    known = np.concatenate(inside)
    return float(np.corrcoef(told[known], np.concatenate(paid)[known])[0, 1])


if __name__ == "__main__":
    runs, domain = Path(sys.argv[1]), sys.argv[2]
    for method in sys.argv[3:]:
        for run in sorted(runs.glob(f"finetune-{method}-{domain}-*")):
            config = json.loads((run / "config.json").read_text())["config"]
            if config["prior_data"] and (run / "result.json").exists():
                found = correlation(run, runs / Path(config["pretrained"]).name)
                row = {
                    "objective": method,
                    "seed": config["seed"],
                    "task": config["task"],
                    "correlation": round(found, 3),
                }
                print(json.dumps(row))
