"""What a sweep costs beside its runs: `python -m benchmarks.sweeps [short|pair]`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from cic.sweep.command import sweep
from cic.sweep.grid import RunGrid


def short(count: int = 40, slots: int = 2) -> float:
    """Milliseconds per run of one step, from the first to the last, without the start of Ray."""
    settings = ("steps=1", "num_envs=1", "hidden=8", "batch=8", "milestones=[]")
    plan = RunGrid(("cic",), ("gridworld",), tuple(range(count)), "smoke", settings=settings).plan()
    with tempfile.TemporaryDirectory() as scratch:
        sweep(plan, out=scratch, slots=slots, quiet=True)
        ends = sorted(path.stat().st_mtime for path in Path(scratch).glob("*/result.json"))
    settled = ends[2 * slots :]  # every worker has imported torch by then
    return 1000 * (settled[-1] - settled[0]) / (len(settled) - 1)


def pair(steps: int = 6_000) -> tuple[float, float]:
    """Steps per second of one run alone, and of two runs in parallel."""
    rates = []
    for count in (1, 2):
        plan = RunGrid(("cic",), ("walker",), tuple(range(count)), "smoke", settings=(f"steps={steps}",)).plan()
        with tempfile.TemporaryDirectory() as scratch:
            sweep(plan, out=scratch, slots=2, quiet=True)
            lines = [json.loads(path.read_text().splitlines()[-1]) for path in Path(scratch).glob("*/timing.jsonl")]
        rates.append(sum(line["time/steps_per_second"] for line in lines))
    return rates[0], rates[1]


def main(names: list[str]) -> None:
    if not names or "short" in names:
        print(f"{short():.1f} ms per run of one step, two in parallel")
    if not names or "pair" in names:
        one, two = pair()
        print(f"one run {one:.0f} steps/s, two in parallel {two:.0f} steps/s: {two / one:.2f}×")


if __name__ == "__main__":
    main(sys.argv[1:])
