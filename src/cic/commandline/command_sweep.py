"""`cic sweep`, and the sweeps behind `cic pretrain --seeds` and `cic finetune RUN… --task DOMAIN`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cic.commandline.flags import POSITIONAL
from cic.sweep.command import GridOptions, SweepOptions, sweep, sweep_cost, sweep_plan, sweep_status
from cic.sweep.plan import Plan


@dataclass(frozen=True)
class SweepArguments:
    options: SweepOptions
    grid: GridOptions
    file: Path | None = field(default=None, metadata=POSITIONAL)
    """A plan in JSON. Without it, --objectives and --domains make the plan."""
    dry_run: bool = False
    """Only estimate the cost of the plan, from the speed of short runs on this machine."""
    status: str | None = None
    """Only show the progress of the sweep in this folder or URL."""
    plan: Path | None = None
    """Only write the plan to this file."""


def run(given: SweepArguments) -> int:
    if given.status is not None:
        print_status(given.status)
        return 0
    plan = sweep_plan(given.file, given.grid)
    if given.plan is not None:
        if given.file is None:
            from cic.sweep.resolve import resolve

            resolve(plan)  # refuses unknown methods, domains and settings before the plan is written
        plan.write(given.plan)
        count = len(plan.runs)
        print(f"{given.plan}: {count} run{'s' * (count != 1)}; `cic sweep {given.plan} --out FOLDER` executes the plan")
        return 0
    if given.dry_run:
        print(sweep_cost(plan, given.options).text())
        return 0
    return execute(plan, given.options)


def execute(plan: Plan, options: SweepOptions) -> int:
    """Execute a plan and print how it ended; return the exit code: 0 if all runs are done, 1 if a run failed."""
    result = sweep(plan, options)
    print(result.summary(options.out))
    return 1 if result.failed else 0


def print_status(where: str) -> None:
    from rich.console import Console

    from cic.sweep.progress import progress_table

    progress = sweep_status(where)
    Console().print(progress_table(progress))
    for run in progress:
        if run.state == "failed":
            print(f"failed: {run.spec.name} ({where}/{run.spec.folder}): {run.message}")
