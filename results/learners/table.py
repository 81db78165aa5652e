"""Mean return of the last evaluation per learner and seed: `python results/learners/table.py [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

from cic.runs import records

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
runs, _ = records.read([folder])
for learner in ("ddpg", "td3", "sac"):
    returns = [run.score for run in sorted(runs, key=lambda run: run.seed) if run.config["learner"] == learner]
    mean = sum(returns) / len(returns) if returns else float("nan")
    print(f"| {learner} | {', '.join(f'{value:.0f}' for value in returns)} | {mean:.0f} |")
