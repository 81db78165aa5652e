"""Compare methods over several seeds, and write a report.

python examples/sweep.py [SCALE]      (laptop by default, about an hour of one core; smoke takes seconds)
"""

from __future__ import annotations

import sys

import cic

scale = sys.argv[1] if len(sys.argv) > 1 else "laptop"
plan = cic.sweep_plan(
    objectives=["cic", "rnd"],
    domains="gridworld",
    seeds=[0, 1],
    tasks="gridworld-reach_top_left",
    scratch=True,
    scale=scale,
)
print(f"{len(plan.runs)} runs")

# One run at a time, without Ray. Omit `slots` to use all cores; `address="HOST:6379"` uses a Ray cluster.
# After an interruption, the same call continues: finished runs are skipped.
result = cic.sweep(plan, out="runs/sweep", slots=1, quiet=True)
print(result.summary("runs/sweep"))

report = cic.report("runs/sweep", "report")
print(*report.findings, report.page, sep="\n")
