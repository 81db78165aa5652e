"""The comparison's table in Markdown: python results/methods/table.py [RUNS]"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from cic.runs import records
from cic.runs.contents import metrics

METHODS = ("random", "fixed", "icm", "disagreement", "rnd", "apt", "proto", "smm", "diayn", "aps", "cic", "cic_std")
TASKS = {
    "point_mass": ("reach_top_left", "reach_top_right", "reach_bottom_left", "reach_bottom_right"),
    "walker": ("stand", "walk", "run", "flip"),
}
SEEDS = (0, 1)
RUNS = {run.name: run for run in records.read([Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent])[0]}


def cells(run: str) -> float:
    return float(metrics(RUNS[run])[0]["coverage/cells"].values[-1])


def zero_shot(run: str, task: str) -> float:
    """Mean return of the episodes that ended in the second half of the run."""
    logged = metrics(RUNS[run])[0]
    last = logged["coverage/cells"].steps[-1]
    steps, values = logged[f"zero_shot/{task}"]
    return float(np.mean(values[steps > last / 2]))


def main() -> None:
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
