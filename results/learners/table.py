"""Mean return of the last evaluation per learner and seed: `python results/learners/table.py [FOLDER]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data"
for learner in ("ddpg", "td3", "sac"):
    runs = sorted(folder.glob(f"{learner}-*/result.json"))
    returns = [json.loads(run.read_text())["return"] for run in runs]
    mean = sum(returns) / len(returns) if returns else float("nan")
    print(f"| {learner} | {', '.join(f'{value:.0f}' for value in returns)} | {mean:.0f} |")
