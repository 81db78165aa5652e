"""table.py RUNS: cells and mean zero-shot returns of the second half of every finished run, to data/runs.csv."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path


def main(runs: Path) -> None:
    rows = []
    for folder in sorted(path.parent for path in runs.glob("*/result.json")):
        result = json.loads((folder / "result.json").read_text())
        config = json.loads((folder / "config.json").read_text())["config"]
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        late = [line for line in lines if line["step"] > config["steps"] / 2]
        for task in [key for key in lines[-1] if key.startswith("zero_shot/")]:
            values = [line[task] for line in late if task in line]
            rows.append(
                [
                    config["domain"],
                    config["objective"],
                    config["preset"],
                    config["seed"],
                    config["steps"],
                    int(result["coverage/cells"]),
                    task.removeprefix("zero_shot/"),
                    round(sum(values) / len(values), 1),
                ]
            )
    with open(Path(__file__).parent / "data" / "runs.csv", "w", newline="") as file:
        header = ["domain", "method", "preset", "seed", "steps", "cells", "task", "return"]
        csv.writer(file).writerows([header, *rows])
    for row in rows:
        print(*row)


main(Path(sys.argv[1]))
