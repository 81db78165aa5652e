"""`cic reproduce`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from cic.commandline.flags import POSITIONAL, flags_of
from cic.commandline.parser import with_quoted_flags
from cic.commandline.text_tables import print_table
from cic.core.errors import UserError
from cic.experiments.reproduce_options import ReproduceOptions


@dataclass(frozen=True)
class ReproduceArguments:
    options: ReproduceOptions
    name: str | None = field(default=None, metadata=POSITIONAL)
    """An experiment, or all; --list shows the experiments."""
    list: bool = False
    """Only list the experiments, their questions and their numbers of runs; --dry-run gives the cost of one."""
    plan: Path | None = None
    """Only write the plan to this file, to be read, edited and run by `cic sweep`."""
    dry_run: bool = False
    """Only estimate the cost, from the speed of short runs on this machine."""


def run(given: ReproduceArguments) -> int:
    if given.list:
        from cic.experiments.all_experiments import listing

        print_table(*listing())
        return 0
    if given.name is None:
        raise UserError("give the name of an experiment, or all; `cic reproduce --list` shows the experiments")
    from cic.experiments.reproduction import reproduce, reproduce_plan
    from cic.report.tables import many

    if given.plan is not None or given.dry_run:
        plan = reproduce_plan(given.name, given.options)
        if given.plan is None:
            from cic.sweep.command import sweep_cost

            print(sweep_cost(plan).text())
        else:
            plan.write(given.plan)
            print(f"{given.plan}: {many(len(plan.runs), 'run')}")
        return 0
    made = reproduce(given.name, given.options)
    for name, summary in made.summaries.items():
        print(f"{name}: {summary}")
    for notice in made.notices:
        print(f"cic: note: {with_quoted_flags(notice, flags_of(ReproduceOptions))}", file=sys.stderr)
    print(f"{made.page}: {many(len(made.drawn), 'experiment')}")
    return 0 if made.complete else 1
