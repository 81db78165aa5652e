"""Named variants of pre-training and finetuning, tried on seeds that no reported table uses.

python results/laptop-scale/explore.py RUNS walker 100 eight:default eight:early …  # pre-training:finetuning
python results/laptop-scale/explore.py --table

Not here any more: sphere… in the log, the preset `distinct` as it was at d4f555d, and direction…, trials on the way to
what it is (see results/beyond-released).

Each finished finetuning adds a line to log.jsonl beside this file: its curve, and the CPU time of both phases, measured
beside whatever else ran. What is there is not run again.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import cic
from cic.core.paper_scores import experts

LOG = Path(__file__).with_name("log.jsonl")
TASKS = {"walker": ("stand", "walk", "run", "flip"), "quadruped": ("stand", "walk", "run", "jump")}
LIBRARY = {"library": 64, "library_starts": 3, "library_steps": 250}  # 48,000 steps without updates
EIGHT = {"num_envs": 8, "update_every": 8, "steps": 248_000, "normaliser": "std", **LIBRARY}
LAPTOP = {"steps": 250_000, "update_every": 8}  # the scale as it was then: 25k updates, then 40 skills from five starts
PRETRAIN: dict[str, dict[str, Any]] = {
    "none": {},  # from scratch
    "one": {"num_envs": 1, "update_every": 2, "steps": 100_000, "normaliser": "std", "library": 0},  # laptop as it was
    "eight": EIGHT,  # 25k updates on 200k steps
    "eight-soft": {**EIGHT, "saturation": 1e-3},  # and so in finetuning
    "eight-slow": {**EIGHT, "lr": 3e-4},
    "eight-disc": {**EIGHT, "reward": "discriminator"},
    "laptop": LAPTOP,
    "laptop-target": {**LAPTOP, "tau": 0.05},
    "laptop-slow": {**LAPTOP, "lr": 3e-4},
    "laptop-long": {**LAPTOP, "steps": 450_000},  # 49.5k updates
    "laptop-data": {},  # as it is now: as many updates as `laptop` had, on twice the data
    "laptop-more-data": {"steps": 850_000, "update_every": 32},  # and on four times
    "laptop-disc": {**LAPTOP, "reward": "discriminator"},
    "laptop-disc-tenth": {**LAPTOP, "reward": "discriminator", "reward_weight": 0.1},
    "distinct": {"preset": "distinct"},
    "released": {"normaliser": "variance", "library": 0},
}
PLAIN = {"prior_data": 0.0}  # only the last one uses relabelled replay
BEFORE = {**PLAIN, "search": "paper", "update_every": 2, "batch": 256}
FINETUNE: dict[str, dict[str, Any]] = {
    "default": {**BEFORE, "warmup": 4_000},  # laptop as it was
    "early": {**BEFORE, "warmup": 1_000},
    "early-double": {**PLAIN, "search": "paper", "warmup": 1_000, "update_every": 1, "batch": 128},
    "early-critic": {**BEFORE, "warmup": 1_000, "critic": "all"},
    "laptop": PLAIN,  # as it was then: an update per step, batch 128, the library's search
    "target": {**PLAIN, "tau": 0.05},
    "target2": {**PLAIN, "tau": 0.02},
    "slow": {**PLAIN, "lr": 3e-4},
    "paper": {**PLAIN, "search": "paper"},
    "critic": {**PLAIN, "critic": "all"},
    "prior": {},  # as it is now: half of each batch from the pre-training
}


def explore(runs: Path, domain: str, seed: int, pair: str) -> None:
    before, after = pair.split(":")
    skills = runs / f"{domain}-{before}-{seed}"
    if before != "none" and not (skills / "result.json").exists():
        begun = time.process_time()
        if skills.exists():
            cic.resume(skills, quiet=True)
        else:
            cic.pretrain(domain, "cic", out=skills, seed=seed, milestones=(), quiet=True, **PRETRAIN[before])
        (skills / "cpu.json").write_text(json.dumps((time.process_time() - begun) / 60))
    told = LOG.read_text() if LOG.exists() else ""
    for task in TASKS[domain]:
        out = runs / f"{domain}-{before}-{seed}-{after}-{task}"
        if f'"{out.name}"' in told:
            continue
        begun = time.process_time()
        source = None if before == "none" else skills
        if out.exists():
            cic.resume(out, quiet=True)
        else:
            cic.finetune(source, f"{domain}-{task}", out=out, seed=seed, quiet=True, **FINETUNE[after])
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        row = {
            "run": out.name, "domain": domain, "pretrain": before, "finetune": after, "task": task, "seed": seed,
            "curve": {line["step"]: line["eval/return"] for line in lines if "eval/return" in line},
            "cpu_minutes": [
                json.loads((skills / "cpu.json").read_text()) if source else 0, (time.process_time() - begun) / 60
            ],
        }  # fmt: skip
        with LOG.open("a") as file:
            file.write(json.dumps(row) + "\n")


def table() -> None:
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in LOG.read_text().splitlines():
        row = json.loads(line)
        groups[row["domain"], row["pretrain"], row["finetune"]].append(row)
    for domain, tasks in TASKS.items():
        print(f"\n{domain}: expert-normalised return\n")
        print("| pre-training | finetuning | seeds | CPU min | 5k | 10k | 20k | end | " + " | ".join(tasks) + " |")
        print("|---|---|---|---|---|---|---|---|" + "---|" * len(tasks))
        for (where, before, after), rows in groups.items():
            if where != domain:
                continue
            steps = [step for step in ("5000", "10000", "20000") if step in rows[0]["curve"]]
            ends = [max(row["curve"], key=int) for row in rows]
            scores = {task: experts()[f"{domain}-{task}"] for task in tasks}
            cells = [
                f"{np.mean([row['curve'][step] / scores[row['task']] for row in rows if step in row['curve']]):.2f}"
                for step in steps
            ]
            end = [row["curve"][at] / scores[row["task"]] for row, at in zip(rows, ends, strict=True)]
            each = [
                "/".join(f"{row['curve'][at]:.0f}" for row, at in zip(rows, ends, strict=True) if row["task"] == task)
                for task in tasks
            ]
            cpu = np.mean(np.array([row["cpu_minutes"] for row in rows], np.float64), axis=0)  # None: not measured
            seeds = sorted({row["seed"] for row in rows})
            print(
                f"| {before} | {after} | {', '.join(map(str, seeds))} | {cpu[0]:.1f} + {cpu[1]:.1f} | "
                + " | ".join([*cells, f"{np.mean(end):.2f}", *each])
                + " |"
            )


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        table()
    else:
        for pair in sys.argv[4:]:
            explore(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), pair)
