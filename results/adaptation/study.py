"""Finetuning on point_mass with the demo's budget: from a skill of the library, against its chosen skill and scratch.

python results/adaptation/study.py run --out runs/adaptation --seeds 0 1 2 3 4 5 6 7 8 9
python results/adaptation/study.py keep runs/adaptation results/adaptation
python results/adaptation/study.py table results/adaptation
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import cic
from cic.report.study_data import write_study
from cic.runs import records

SMALL = {"hidden": 64, "batch": 128, "lr": 1e-3, "log_every": 5_000, "checkpoint_every": 100_000, "quiet": True}
PRETRAIN = {
    "steps": 336_000,
    "num_envs": 8,
    "update_every": 8,
    "warmup": 1_000,
    "skill_dim": 16,
    "skill_every": 100,
    "loss": "released",
    "normaliser": "std",
    "reward": "discriminator",
    "milestones": (),
}
LIBRARY = {"library": 96, "library_starts": 5, "library_steps": 500}
BUDGET = {**SMALL, "steps": 3_000, "warmup": 400, "update_every": 1}
SEARCH = {
    "search": "library",
    "search_steps": 2_000,
    "trial_steps": 150,
    "finalists": 3,
    "check_steps": 600,
    "prior_data": 0,
}
CORNERS = ("top_left", "top_right", "bottom_left", "bottom_right")
EXTRA = ("alone", "measured")
EVALUATION = {"episodes": 50, "seed": 10_000}  # the same starts for all: ten of a run's own leave some 50 open


def run(out: Path, seeds: list[int]) -> None:
    """What is there already is not run again."""
    for seed in seeds:
        skills = out / str(seed) / "skills"
        if not (skills / "result.json").exists():
            cic.pretrain("point_mass", "cic", out=skills, seed=seed, **SMALL, **PRETRAIN, **LIBRARY)
        for corner in CORNERS:
            task, shared = f"point_mass-reach_{corner}", {"seed": seed, **BUDGET}
            tuned, scratch = (out / str(seed) / f"{corner}-{kind}" for kind in ("cic", "scratch"))
            if not (tuned / "result.json").exists():
                cic.finetune(skills, task, out=tuned, **shared, **SEARCH)
            if not (scratch / "result.json").exists():
                cic.finetune(None, task, out=scratch, **shared)
            alone = cic.evaluate(skills, skill=np.array(read(tuned / "result.json")["skill"]), **EVALUATION)
            write(tuned / "alone.json", alone.returns[f"reach_{corner}"])
            for each in (tuned, scratch):
                write(each / "measured.json", cic.evaluate(each, **EVALUATION).returns[task])


def keep(source: Path, target: Path) -> None:
    """Write the runs as tables, without weights."""
    runs, _ = records.read([source])
    extra = {
        run.name: {name: read(path) for name in EXTRA if (path := run.path / f"{name}.json").exists()} for run in runs
    }
    write_study(target, runs, {name: found for name, found in extra.items() if found}, points=None)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def write(path: Path, returns: list[float]) -> None:
    path.write_text(json.dumps({"return": float(np.mean(returns)), "returns": np.round(returns, 1).tolist()}))


def returns(data: Path) -> list[tuple[str, str, float, float, str, float]]:
    """Seed, corner, return of the skill alone, of the finetuned policy, what was kept, and from scratch."""
    measured = read(data / "measurements.json")
    rows = []
    for run in sorted(records.read([data])[0], key=lambda run: run.name):
        seed, _, name = run.name.partition("/")
        if run.result is not None and name.endswith("-cic"):
            corner = name.removesuffix("-cic")
            alone, tuned = (measured[run.name][of]["return"] for of in EXTRA)
            scratch = measured[f"{seed}/{corner}-scratch"]["measured"]["return"]
            rows.append((seed, corner, alone, tuned, str(run.result["kept"]), scratch))
    return rows


def table(data: Path) -> None:
    rows = returns(data)
    print("| seed | corner | skill alone | finetuned | kept | scratch |\n|---|---|---|---|---|---|")
    for seed, corner, one, tuned, kept, other in rows:
        print(f"| {seed} | {corner} | {one:.0f} | {tuned:.0f} | {kept} | {other:.0f} |")
    alone, finetuned, scratch = (np.array([row[column] for row in rows]) for column in (2, 3, 5))
    print(f"| mean | | {alone.mean():.0f} | {finetuned.mean():.0f} | | {scratch.mean():.0f} |\n")
    worse, losses = int((finetuned < scratch).sum()), alone - finetuned
    print(f"Worse than scratch: {worse} of {len(rows)}. Largest loss against its skill: {losses.max():.0f}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    running, keeping, showing = (verbs.add_parser(name) for name in ("run", "keep", "table"))
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--seeds", type=int, nargs="+", required=True)
    keeping.add_argument("source", type=Path)
    for each in (keeping, showing):
        each.add_argument("data", type=Path)
    given = parser.parse_args()
    if given.verb == "run":
        run(given.out, given.seeds)
    elif given.verb == "keep":
        keep(given.source, given.data)
    else:
        table(given.data)


if __name__ == "__main__":
    main()
