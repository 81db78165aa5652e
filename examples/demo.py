"""Two minutes of cic: discover skills without rewards, finetune one per task, compare with scratch, draw them.

    make demo        (or: python examples/demo.py --out demo)

The domain is point_mass: a ball in a box, pushed by two actuators. Pre-training uses no reward. Then each of four
tasks, "move to this corner", has a small budget: once to select and finetune a skill, once to train from scratch.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import numpy as np

import cic

SMALL = {"hidden": 64, "batch": 128, "lr": 1e-3, "log_every": 5_000, "checkpoint_every": 20_000}
# Eight parallel environments: 96,000 steps of training, then 96 skills from five initial states for 500 steps each,
# without updates, for the skill library. The discriminator's reward makes skills differ; the released reward of CIC
# does not depend on the skill.
LIBRARY = {"library": 96, "library_starts": 5, "library_steps": 500}
PRETRAIN = {
    **SMALL,
    "steps": 336_000,
    "num_envs": 8,
    "update_every": 8,
    "warmup": 1_000,
    "skill_dim": 16,
    "skill_every": 100,
    "loss": "released",
    "normaliser": "std",
    "reward": "discriminator",
    **LIBRARY,
}
BUDGET = {**SMALL, "steps": 3_000, "warmup": 400, "update_every": 1}
# Trials of four skills label states with rewards; then the three skills with the best predicted score are tried. At the
# end, the better of skill and finetuned policy is kept.
SEARCH = {
    "search": "library",
    "search_steps": 2_000,
    "trial_steps": 150,
    "finalists": 3,
    "check_steps": 600,
    "prior_data": 0,
}
CORNERS = ("top_left", "top_right", "bottom_left", "bottom_right")


MARK = "made-by-the-demo"


def make_room(out: Path) -> None:
    """Remove the runs of an earlier demo. Refuse a folder that another program made."""
    if out.exists() and not (out / MARK).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise SystemExit(f"demo: {out} was not made by the demo: choose another --out, or move it away")
    runs = ["skills", *(f"{corner}-{kind}" for corner in CORNERS for kind in ("cic", "scratch"))]
    for run in runs:
        shutil.rmtree(out / run, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the runs and the picture")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    make_room(given.out)
    began = time.monotonic()

    print(f"1. Discover skills in point_mass: {PRETRAIN['steps']:,} steps without any reward.", flush=True)
    skills = cic.pretrain("point_mass", "cic", out=given.out / "skills", seed=given.seed, **PRETRAIN)

    print(f"2. Four tasks, {BUDGET['steps']:,} steps each: from a skill, and from scratch. Returns, at most 1,000:")
    line = "   {:<30} {:>11} {:>9} {:>12}".format
    print(line("task", "skill alone", "finetuned", "from scratch"), flush=True)
    rows = []
    for corner in CORNERS:
        task, shared = f"point_mass-reach_{corner}", {"seed": given.seed, "quiet": True, **BUDGET}
        tuned = cic.finetune(skills.path, task, out=given.out / f"{corner}-cic", **shared, **SEARCH)
        scratch = cic.finetune(None, task, out=given.out / f"{corner}-scratch", **shared)
        alone = cic.evaluate(skills.path, skill=tuned.result["skill"], seed=given.seed).returns[f"reach_{corner}"]
        rows.append([np.mean(alone), tuned.result["return"], scratch.result["return"]])
        print(line(task, *(f"{value:.0f}" for value in rows[-1])), flush=True)
    means = np.mean(rows, axis=0)
    print(line("mean", *(f"{value:.0f}" for value in means)))
    ahead = sum(tuned > scratch for _, tuned, scratch in rows)
    print(
        f"   The skills were learned without any reward. The selected skill alone reaches {means[0]:.0f}.\n"
        f"   After {BUDGET['steps']:,} steps, which include the selection, the finetuned policy has {means[1]:.0f} and"
        f" the policy\n   from scratch {means[2]:.0f}. Finetuning a skill is better in {ahead} of {len(rows)} tasks."
    )

    drawn = cic.skills(skills.path, count=24, choose="different", starts=1, compare=0, out=given.out, video=False)
    print(f"3. Paths of the 24 most different of 96 skills from one initial state: {drawn.files[1]}")
    print(f"   The demo took {time.monotonic() - began:.0f} s.")


if __name__ == "__main__":
    main()
