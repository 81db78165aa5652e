"""Scores at equal CPU time: finetunings with relabelled replay take longer, so 25,000 of 30,000 steps are used.

python results/beyond-released/equal_time.py   # from the tables that are here
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.stats import trim_mean

from cic.core.paper_scores import experts
from cic.runs import records
from cic.runs.contents import metrics

HERE = Path(__file__).parent
NAMES = {("entropy", 0.0): "released", ("entropy", 0.5): "released, relabelled replay", ("direction", 0.5): "distinct"}


def scores(least: int) -> dict[str, dict[str, list[float]]]:
    """Variant → task → scores of all seeds; with relabelled replay at the step `least`, without at the end."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in records.read_study(HERE):
        assert isinstance(run, records.RunRecord), run
        if run.kind == "finetune":
            curve = dict(zip(*metrics(run, ("eval/return",))[0]["eval/return"], strict=True))
            at = least if run.config["prior_data"] else run.steps
            name = NAMES[run.config["options"]["reward"], run.config["prior_data"]]
            found[name][run.task].append(curve[at] / experts()[run.task])
    return found


def iqm(found: dict[str, list[float]], rng: np.random.Generator | None = None) -> float:
    drawn = [rng.choice(values, len(values)) if rng else values for values in found.values()]
    return float(trim_mean(np.concatenate(drawn), 0.25))


if __name__ == "__main__":
    for least in (25_000, 30_000):
        found = scores(least)
        print(f"with relabelled replay at {least:,} steps, released at 30,000:")
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
