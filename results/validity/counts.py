"""counts.py: apply the validity checks to the curves of earlier studies and count the runs that they report.

Later studies are excluded: the checks themselves have decided which of their runs are sound.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from cic.learning.objectives.smm import LEAST_KL
from cic.runs import records
from cic.runs.contents import metrics
from cic.runs.records import RunRecord
from cic.training.validity import Problems

RESULTS = Path(__file__).parents[1]
CHECKED = ("spaces", "steering", "comparison", "beyond")
"""Studies of runs that the checks have marked."""
METRICS = (
    "reward/intrinsic",
    "reward/task",
    "critic/q",
    "embedding/effective_rank",
    "skill/accuracy",
    "skill/chance",
    "density/kl",
    "skill/cross_entropy",
)


def problems(run: RunRecord) -> set[str]:
    """The problems at the end of the run, from the metrics that its table has."""
    curves = metrics(run, METRICS)[0]
    lines: dict[float, dict[str, float]] = defaultdict(dict)
    for name, series in curves.items():
        for step, value in zip(series.steps, series.values, strict=True):
            lines[float(step)][name] = float(value)
    learning = run.config.get("learning", {})
    found = Problems(float(learning.get("gamma", 0.99)) ** int(learning.get("nstep", 3)))
    for step, numbers in sorted(lines.items()):
        if "critic/q" not in numbers:
            continue
        if "skill/cross_entropy" in numbers:  # SMM: four skills
            numbers["skill/information"] = 1 - numbers["skill/cross_entropy"] / 1.3863
        own = {"VAE without information": "KL"} if numbers.get("density/kl", 1.0) < LEAST_KL else {}
        found.update(numbers, own, int(step), step / max(run.steps, 1))
    return set(found.found)


def count() -> dict[tuple[str, str], Counter[str]]:
    """(kind, title) → the number of runs, and of each problem."""
    counted: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    seen: set[str] = set()
    for run in records.read([RESULTS])[0]:
        if run.path.relative_to(RESULTS).parts[0] in CHECKED:
            continue
        if run.path.name in seen and run.path.name.startswith("pretrain-"):
            continue  # a pre-training that two studies share
        seen.add(run.path.name)
        representation = run.config.get("options", {}).get("representation", True)
        kind = run.title + ("" if representation else ", no representation")
        if run.kind == "pretrain" and run.sound is not None:
            kind += ", sound" if run.sound else ", collapsed"
        row = counted[run.kind, kind]
        row["runs"] += 1
        row.update(problems(run))
    return counted


def main() -> None:
    for (run_kind, kind), row in sorted(count().items()):
        reported = ", ".join(f"{name} {count}" for name, count in sorted(row.items()) if name != "runs")
        print(f"| {run_kind} | {kind} | {row['runs']} | {reported or 'none'} |")


if __name__ == "__main__":
    main()
