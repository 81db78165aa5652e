"""The comparison's table in Markdown, and its data beside it: python results/methods/table.py RUNS"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np

METHODS = ("random", "fixed", "icm", "disagreement", "rnd", "apt", "proto", "smm", "diayn", "aps", "cic", "cic_std")
TASKS = {
    "point_mass": ("reach_top_left", "reach_top_right", "reach_bottom_left", "reach_bottom_right"),
    "walker": ("stand", "walk", "run", "flip"),
}
SEEDS = (0, 1)
DATA = Path(__file__).parent / "data"


def collect(runs: Path) -> None:
    for run in sorted(runs.iterdir()):
        if (run / "result.json").exists():
            (DATA / run.name).mkdir(parents=True, exist_ok=True)
            for name in ("config.json", "metrics.jsonl", "result.json"):
                shutil.copy(run / name, DATA / run.name / name)


def lines(run: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in (DATA / run / "metrics.jsonl").read_text().splitlines()]


def cells(run: str) -> float:
    return lines(run)[-1]["coverage/cells"]


def zero_shot(run: str, task: str) -> float:
    """Mean return of the episodes that ended in the second half of the run."""
    logged = lines(run)
    late = [
        line[f"zero_shot/{task}"]
        for line in logged
        if line["step"] > logged[-1]["step"] / 2 and f"zero_shot/{task}" in line
    ]
    return float(np.mean(late))


def main() -> None:
    if len(sys.argv) > 1:
        collect(Path(sys.argv[1]))
    for domain, tasks in TASKS.items():
        print(f"\n| {domain} | cells, seed 0 | cells, seed 1 | of random | {' | '.join(tasks)} |")
        print("|---" * (4 + len(tasks)) + "|")
        chance = np.mean([cells(f"{domain}-random-{seed}") for seed in SEEDS])
        for method in METHODS:
            runs = [f"{domain}-{method}-{seed}" for seed in SEEDS]
            covered = [cells(run) for run in runs]
            returns = [np.mean([zero_shot(run, task) for run in runs]) for task in tasks]
            numbers = (
                [f"{c:.0f}" for c in covered] + [f"{np.mean(covered) / chance:.2f}"] + [f"{r:.0f}" for r in returns]
            )
            print(f"| {method} | {' | '.join(numbers)} |")


if __name__ == "__main__":
    main()
