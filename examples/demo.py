"""Two minutes of cic: discover skills without rewards, pick one for a task, compare with scratch, draw them.

    make demo        (or: python examples/demo.py --out demo)

The domain is point_mass: a ball in a box, pushed by two actuators. Pre-training never sees a reward. Then each of four
tasks, "go to that corner", gets a small budget: once to choose among the skills, once to learn from nothing.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import cic
from cic.cli import _table as print_table
from cic.skills import describe

SMALL = {"hidden": 64, "batch": 128, "lr": 1e-3, "log_every": 5_000, "checkpoint_every": 20_000}
PRETRAIN = {**SMALL, "steps": 20_000, "warmup": 1_000, "skill_dim": 16, "skill_every": 100, "normaliser": "std"}
BUDGET = {**SMALL, "steps": 8_500, "warmup": 8_000, "num_envs": 4, "eval_every": 9_000}
# 20 random skills, each from 4 new starts for 100 steps; in the rest the fresh critic learns, the policy stays as it is
SEARCH = {"method": "random", "trial_steps": 400, "trial_resets": True, "critic_updates": 250}
CORNERS = ("top_left", "top_right", "bottom_left", "bottom_right")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the runs and the picture")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.out.exists():
        shutil.rmtree(given.out)
    began = time.monotonic()

    print(f"1. Discover skills in point_mass: {PRETRAIN['steps']:,} steps without any reward.", flush=True)
    skills = cic.pretrain("point_mass", "cic", out=given.out / "skills", seed=given.seed, **PRETRAIN)

    print(f"2. Four tasks, {BUDGET['steps']:,} steps each: on top of the skills, and from scratch.", flush=True)
    rows = []
    for corner in CORNERS:
        task = f"point_mass-reach_{corner}"
        returns = []
        for name, start, search in (("cic", skills.path, SEARCH), ("scratch", None, {})):
            out = given.out / f"{corner}-{name}"
            tuned = cic.finetune(start, task, out=out, seed=given.seed, quiet=True, **BUDGET, **search)
            returns.append(tuned.result["return"])
        rows.append([task, *(f"{value:.0f}" for value in returns)])
        print(f"   {task}: {returns[0]:.0f} with skills, {returns[1]:.0f} from scratch", flush=True)

    drawn = describe(skills.path, count=24, choose="random", out=given.out, video=False)
    means = [sum(float(row[column]) for row in rows) / len(rows) for column in (1, 2)]
    rows.append(["mean", *(f"{value:.0f}" for value in means)])
    print(f"3. Return after {BUDGET['steps']:,} steps (1,000 is the most), in {time.monotonic() - began:.0f} s:")
    print_table(["task", "with skills", "from scratch"], rows)
    print(f"The skills' trajectories: {drawn.files[1]}")


if __name__ == "__main__":
    main()
