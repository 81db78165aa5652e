"""The same at equal CPU time: finetunings with prior data take longer, so they are read at 25,000 of 30,000 steps.

python results/beyond-released/equal_time.py   # from the run folders that are here
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.stats import trim_mean

from cic.core.paper_scores import experts

HERE = Path(__file__).parent
NAMES = {("entropy", 0.0): "released", ("entropy", 0.5): "released, prior data", ("direction", 0.5): "distinct"}


def scores(least: int) -> dict[str, dict[str, list[float]]]:
    """Variant → task → scores of all seeds; of those with prior data at the step `least`, of the others at the end."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in sorted((HERE / "runs").glob("finetune-*")):
        config = json.loads((run / "config.json").read_text())["config"]
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        curve = {line["step"]: line["eval/return"] for line in lines if "eval/return" in line}
        at = least if config["prior_data"] else config["steps"]
        name = NAMES[config["options"]["reward"], config["prior_data"]]
        found[name][config["task"]].append(curve[at] / experts()[config["task"]])
    return found


def iqm(found: dict[str, list[float]], rng: np.random.Generator | None = None) -> float:
    drawn = [rng.choice(values, len(values)) if rng else values for values in found.values()]
    return float(trim_mean(np.concatenate(drawn), 0.25))


if __name__ == "__main__":
    for least in (25_000, 30_000):
        found = scores(least)
        print(f"with prior data at {least:,} steps, released at 30,000:")
        for name, mine in found.items():
            rng = np.random.default_rng(0)
            apart = [iqm(mine, rng) - iqm(found["released"], rng) for _ in range(2000)]
            low, high = np.percentile(apart, [2.5, 97.5])
            more = (
                f", {iqm(mine) - iqm(found['released']):.2f} [{low:.2f}, {high:.2f}] above"
                if name != "released"
                else ""
            )
            print(f"  {name}: IQM {iqm(mine):.2f}{more} ({sum(map(len, mine.values()))} finetunings)")
