"""Minutes that the runs of a study took: medians by phase, objective, reward, prior data and domain.

python results/experiments/minutes.py results/beyond-released
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from cic.runs import records


def table(folder: Path) -> None:
    groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for run in records.read_study(folder):
        if isinstance(run, records.RunRecord) and np.isfinite(run.minutes):
            reward = run.config.get("options", {}).get("reward", "")
            prior = f"{run.config.get('prior_data') or 0:g}"
            groups[run.kind, run.method, reward, prior, run.domain].append(run.minutes)
    print("| phase | objective | reward | prior data | domain | runs | minutes | least | most |")
    print("|---|---|---|---|---|---|---|---|---|")
    for group, found in sorted(groups.items()):
        numbers = (f"{number:.1f}" for number in (np.median(found), min(found), max(found)))
        print(f"| {' | '.join(group)} | {len(found)} | {' | '.join(numbers)} |")


if __name__ == "__main__":
    table(Path(sys.argv[1]))
