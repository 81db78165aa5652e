"""Learning curves of walker's four tasks, means over the seeds, and their expert-normalised mean.

python results/walker-defaults/table.py [RUNS …]   # by default every part of the tables that are here
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cic.core.paper_scores import experts
from cic.runs import records
from cic.runs.contents import metrics

TASKS, STEPS = ("stand", "walk", "run", "flip"), (5_000, 10_000, 15_000, 20_000, 25_000, 30_000)
PARTS = ("450k", "250k", "without-prior-data")


def curves(runs: Sequence[records.RunRecord]) -> dict[tuple[str, str], np.ndarray]:
    """(task, cic or scratch) → returns, a row per seed and a column per step."""
    found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.seed):
        if run.kind == "finetune" and run.finished:
            logged = dict(zip(*metrics(run, ("eval/return",))[0]["eval/return"], strict=True))
            kind = "cic" if run.method == "cic" else "scratch"
            found[run.task.partition("-")[2], kind].append([logged[step] for step in STEPS])
    return {key: np.array(rows) for key, rows in found.items()}


def normalised(found: dict[tuple[str, str], np.ndarray], kind: str) -> np.ndarray:
    """The mean over tasks and seeds at each step, of the expert's return."""
    shares = [rows.mean(axis=0) / experts()[f"walker-{task}"] for (task, of), rows in found.items() if of == kind]
    return np.mean(shares, axis=0)


def show(runs: Sequence[records.RunRecord]) -> None:
    found = curves(runs)
    print("| task | start | " + " | ".join(f"{step // 1000}k" for step in STEPS) + " | 30k by seed |")
    print("|---|---|" + "---|" * (len(STEPS) + 1))
    for task in TASKS:
        for kind in ("cic", "scratch"):
            if (task, kind) in found:
                rows = found[task, kind]
                ends = ", ".join(f"{value:.0f}" for value in rows[:, -1])
                print(f"| {task} | {kind} | " + " | ".join(f"{v:.0f}" for v in rows.mean(axis=0)) + f" | {ends} |")
    for kind in sorted({kind for _, kind in found}):
        print(f"| normalised | {kind} | " + " | ".join(f"{v:.2f}" for v in normalised(found, kind)) + " | |")


if __name__ == "__main__":
    if sys.argv[1:]:
        show(records.read([Path(path) for path in sys.argv[1:]])[0])
    else:
        kept = records.read([Path(__file__).parent])[0]
        for part in PARTS:
            print(f"\n{part}:")
            show([run for run in kept if run.name.startswith(f"{part}/")])
