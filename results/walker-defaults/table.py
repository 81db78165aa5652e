"""table.py DATA …: learning curves of walker's four tasks, means over the seeds, and their expert-normalised mean."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from cic.core.paper_scores import experts

TASKS, STEPS = ("stand", "walk", "run", "flip"), (5_000, 10_000, 15_000, 20_000, 25_000, 30_000)


def main(data: Path) -> None:
    curves: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for folder in sorted(data.glob("*-*-*")):
        task, kind, _ = folder.name.split("-")
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        found = {line["step"]: line["eval/return"] for line in lines if "eval/return" in line}
        if all(step in found for step in STEPS):
            curves[task, kind].append([found[step] for step in STEPS])
    print("| task | start | " + " | ".join(f"{step // 1000}k" for step in STEPS) + " | 30k by seed |")
    print("|---|---|" + "---|" * (len(STEPS) + 1))
    shares: dict[str, list[list[float]]] = defaultdict(list)
    for task in TASKS:
        for kind in ("cic", "scratch"):
            if (task, kind) in curves:
                table = np.array(curves[task, kind])
                shares[kind].append((table.mean(axis=0) / experts()[f"walker-{task}"]).tolist())
                ends = ", ".join(f"{value:.0f}" for value in table[:, -1])
                print(
                    f"| {task} | {kind} | "
                    + " | ".join(f"{value:.0f}" for value in table.mean(axis=0))
                    + f" | {ends} |"
                )
    for kind, rows in shares.items():
        print(f"| normalised | {kind} | " + " | ".join(f"{value:.2f}" for value in np.mean(rows, axis=0)) + " | |")


for given in sys.argv[1:]:
    main(Path(given))
    print()
