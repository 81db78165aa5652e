"""`cic sweep`, and the sweeps behind `cic pretrain --seeds` and `cic finetune RUN… --task DOMAIN`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cic import __version__
from cic.core.errors import UserError
from cic.sweep.plan import Plan, read_plan
from cic.sweep.specs import RunSpec


@dataclass(frozen=True)
class SweepOptions:
    """A plan from a file or from --objectives, --domains and --seeds, and where it is executed."""

    out: str = "runs"
    """Where the runs are written: a folder that all nodes see, or a URL such as s3://bucket/sweep."""
    address: str | None = None
    """Join the Ray cluster at HOST:PORT (or auto, the one on this machine) instead of starting Ray on this machine."""
    slots: int | None = None
    """Runs at the same time; by default as many as there are cores."""
    cpus: float | None = None
    """Cores per run; by default one per thread."""
    gpus: float | None = None
    """GPUs per run; with 0.25, four runs share one."""
    memory: float | None = None
    """GB per run; by default 1 plus the replay buffer."""
    dry_run: bool = False
    """Only estimate the cost of the plan, from step times measured now on this machine."""
    status: str | None = None
    """Only show the progress of the sweep in this folder or URL."""
    plan: Path | None = None
    """Only write the plan to this file."""
    objectives: str | None = None
    """Methods, separated by commas."""
    domains: str | None = None
    """Domains, separated by commas."""
    seeds: str = "0"
    """0-4, or 0,3,7."""
    tasks: str = ""
    """Finetune to these tasks, separated by commas; a domain stands for all its tasks."""
    scratch: bool = False
    """Also train each task from scratch."""
    scale: str = "laptop"
    """smoke, laptop or paper."""
    set: tuple[str, ...] = ()
    """NAME=VALUE[,VALUE…] for pre-trainings, finetune.NAME=… for finetunings; all combinations are run."""
    quiet: bool = False
    """Show no progress."""


def sweep(file: Path | None, options: SweepOptions) -> int:
    """Return the exit code: 0 if all runs are done, 1 if a run failed."""
    if options.status is not None:
        print_status(options.status)
        return 0
    plan = _plan(file, options)
    if options.plan is not None:
        plan.write(options.plan)
        print(f"{options.plan}: {len(plan.runs)} runs; `cic sweep {options.plan} --out FOLDER` runs them")
        return 0
    from cic.sweep.resolve import resolve

    specs = [_with_resources(spec, options) for spec in resolve(plan)]
    if options.dry_run:
        print_cost(plan, specs)
        return 0
    return _execute(plan, specs, options.out, address=options.address, slots=options.slots, quiet=options.quiet)


def _plan(file: Path | None, options: SweepOptions) -> Plan:
    by_options = options.objectives is not None or options.domains is not None or options.scratch
    if (file is not None) == by_options:
        raise UserError("give either a plan or --objectives and --domains, for example: cic sweep plan.json --out runs")
    if file is not None:
        given = {name for name in ("seeds", "tasks", "scale", "set") if getattr(options, name) != _DEFAULT[name]}
        if given:
            raise UserError(f"--{min(given)} is for a new plan, but {file} is a plan: edit it, or remove the flag")
        plan = read_plan(file)
        if plan.version != __version__:
            print(f"cic: {file} was made by cic {plan.version}; its defaults may differ here", file=sys.stderr)
        return plan
    from cic.sweep.grid import RunGrid, parse_seeds

    if (options.objectives is None) != (options.domains is None):
        raise UserError("--objectives and --domains must be given together")
    if options.scratch and not options.tasks:
        raise UserError("--scratch needs --tasks")
    return RunGrid(
        objectives=_words(options.objectives),
        domains=_words(options.domains),
        seeds=parse_seeds(options.seeds),
        scale=options.scale,
        tasks=_words(options.tasks),
        scratch=options.scratch,
        settings=options.set,
    ).plan()


_DEFAULT = {field.name: field.default for field in dataclasses.fields(SweepOptions)}


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in (text or "").split(",") if word.strip()))


def _with_resources(spec: RunSpec, options: SweepOptions) -> RunSpec:
    given = {name: getattr(options, name) for name in ("cpus", "gpus", "memory") if getattr(options, name) is not None}
    return dataclasses.replace(spec, needs=dataclasses.replace(spec.needs, **given)) if given else spec


def _execute(plan: Plan, specs: Sequence[RunSpec], out: str, **options: Any) -> int:
    from cic.sweep.driver import ExecutionOptions, run_plan

    ended = run_plan(plan, out, ExecutionOptions(**options), specs)
    print(ended.summary(out))
    return 1 if ended.failed else 0


def run_small(plan: Plan, out: Path | None, quiet: bool) -> int:
    """Execute the plan of `cic pretrain --seeds` or `cic finetune RUN… --task DOMAIN`."""
    from cic.sweep.resolve import resolve

    return _execute(plan, resolve(plan), str(out or "runs"), quiet=quiet)


def print_status(where: str) -> None:
    from rich.console import Console

    from cic.sweep.display import progress_table
    from cic.sweep.status import group, read_status
    from cic.sweep.store import Store

    progress = read_status(Store(where))
    Console().print(progress_table(group(progress)))
    for run in progress:
        if run.state == "failed":
            print(f"failed: {run.spec.name} ({where}/{run.spec.folder}): {run.message}")


def print_cost(plan: Plan, specs: Sequence[RunSpec]) -> None:
    from cic.sweep.cost import estimate
    from cic.sweep.resolve import resolve_configs

    found = estimate(specs, resolve_configs(plan), lambda text: print(f"cic: {text}", file=sys.stderr, flush=True))
    print(found.text())


def finetunings(
    runs: Sequence[Path], task: str, seeds: Iterable[int] | None, settings: dict[str, Any], at: int | None
) -> Plan:
    """Return a plan that finetunes runs to a task, or to all tasks of a domain; by default with their own seeds."""
    from cic.runs.folder import Run
    from cic.sweep.grid import tasks_of
    from cic.sweep.plan import Entry

    entries = []
    for run in dict.fromkeys(runs):
        opened = Run(run)
        for seed in [opened.config.get("seed", 0)] if seeds is None else seeds:
            for one in tasks_of(task):
                config = {"task": one, **settings, "seed": seed} | ({} if at is None else {"at": at})
                entries.append(
                    Entry(f"{run.name}-{one}-s{seed}", "finetune", config, pretrained=str(opened.path.absolute()))
                )
    return Plan(tuple(entries))
