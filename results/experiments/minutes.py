"""How long the runs of a kept folder took: medians by phase, objective, reward, prior data and domain.

python results/experiments/minutes.py results/beyond-released
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np


def table(folder: Path) -> None:
    groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
    with (folder / "minutes.csv").open() as file:
        for row in csv.DictReader(file):
            header = json.loads((folder / "runs" / row["run"] / "config.json").read_text())
            config = header["config"]
            domain = config.get("domain") or config["task"].partition("-")[0]
            reward, prior = config["options"].get("reward", ""), f"{config.get('prior_data') or 0:g}"
            groups[header["kind"], config["objective"], reward, prior, domain].append(float(row["minutes"]))
    print("| phase | objective | reward | prior data | domain | runs | minutes | least | most |")
    print("|---|---|---|---|---|---|---|---|---|")
    for group, found in sorted(groups.items()):
        numbers = (f"{number:.1f}" for number in (np.median(found), min(found), max(found)))
        print(f"| {' | '.join(group)} | {len(found)} | {' | '.join(numbers)} |")


if __name__ == "__main__":
    table(Path(sys.argv[1]))
