"""Which reward makes CIC's skills differ: short pre-trainings on a seed that no reported table uses.

python results/beyond-released/screen.py RUNS walker 101 projected sphere …
python results/beyond-released/screen.py --explain RUN …   # of finished pre-trainings, into explained.jsonl
python results/beyond-released/screen.py --table

200,000 steps at scale `laptop` (12,250 updates) without a library, then 24 random skills act for 500 steps from four
starts each. Each adds a line to screening.jsonl beside this file.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import cic
from cic.training.skill_variance import diagnose

LOG, EXPLAINED = (Path(__file__).with_name(name) for name in ("screening.jsonl", "explained.jsonl"))
SIMILARITY: dict[str, Any] = {"reward": "similarity", "skill_dim": 8}
RAW = {**SIMILARITY, "projection": False}
SPHERE = {**RAW, "skill_space": "sphere"}  # an option until d4f555d
VARIANTS: dict[str, dict[str, Any]] = {
    "entropy alone": {},
    "projected": SIMILARITY,
    "discriminator, T 0.1, weight 3, infonce": {
        "reward": "discriminator", "skill_dim": 8, "reward_weight": 3.0, "loss": "infonce", "temperature": 0.1,
    },
    "discriminator, T 0.1": {"reward": "discriminator", "skill_dim": 8, "temperature": 0.1},
    "discriminator, raw, T 0.1": {
        "reward": "discriminator", "skill_dim": 8, "projection": False, "temperature": 0.1,
    },
    "raw, weight 0.3": {**RAW, "reward_weight": 0.3},
    "raw": RAW,
    "raw, weight 3": {**RAW, "reward_weight": 3.0},
    "sphere": SPHERE,
    "sphere, infonce": {**SPHERE, "loss": "infonce"},
}  # fmt: skip


def screen(runs: Path, domain: str, seed: int, name: str) -> dict[str, Any]:
    out = runs / f"{domain}-{name}-{seed}".replace(" ", "_").replace(",", "")
    begun = time.process_time()
    if not (out / "result.json").exists():
        settings = {"steps": 200_000, "library": 0, "milestones": (), "quiet": True, **VARIANTS[name]}
        cic.resume(out, quiet=True) if out.exists() else cic.pretrain(domain, "cic", out=out, seed=seed, **settings)
    minutes = round((time.process_time() - begun) / 60, 1)
    return {"domain": domain, "seed": seed, "variant": name, **explained(out, domain), "cpu_minutes": minutes}


def explained(run: Path, domain: str) -> dict[str, Any]:
    agent = cic.load(run)
    skills = agent.objective.skills.sample(24, np.random.default_rng(0))
    found = diagnose(agent, domain, skills, starts=4, seed=0, limit=500)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    shares = {name: round(share.value, 2) for name, share in found.shares.items()}
    return {"explains": shares, "coverage": round(last["coverage/fraction"], 2)}


def table() -> None:
    for line in EXPLAINED.read_text().splitlines():
        print(line)
    rows = [json.loads(line) for line in LOG.read_text().splitlines()]
    print("\n| the added term | behaviour | stand | walk | run | flip | coverage | CPU min |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        cells = [f"{share:.2f}" for share in row["explains"].values()]
        print(f"| {row['variant']} | " + " | ".join(cells) + f" | {row['coverage']:.2f} | {row['cpu_minutes']} |")


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        table()
    elif sys.argv[1] == "--explain":
        for run in map(Path, sys.argv[2:]):
            with EXPLAINED.open("a") as file:
                file.write(json.dumps({"run": run.name, **explained(run, run.name.split("-")[0])}) + "\n")
    else:
        for name in sys.argv[4:]:
            with LOG.open("a") as file:
                file.write(json.dumps(screen(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), name)) + "\n")
