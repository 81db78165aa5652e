"""`cic sweep`: what the command does once its flags are read, and the sweeps behind `--seeds` and several runs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cic import __version__
from cic.core.errors import UserError
from cic.sweep.jobs import Job
from cic.sweep.leases import SECONDS
from cic.sweep.plan import Plan, read_plan


@dataclass(frozen=True)
class SweepOptions:
    """A plan from a file, or from --objectives, --domains and --seeds; and how it is run."""

    out: str = "runs"
    """Where the runs go: a folder that all nodes see, or a URL such as s3://bucket/sweep."""
    address: str | None = None
    """Join the Ray cluster at HOST:PORT (or auto, the one on this machine) instead of starting Ray on this machine."""
    slots: int | None = None
    """Runs at once; by default as many as there are cores."""
    cpus: float | None = None
    """Cores per run; by default its threads."""
    gpus: float | None = None
    """GPUs per run; 0.25 lets four runs share one."""
    memory: float | None = None
    """GB per run; by default 1 and room for the replay."""
    lease: float = SECONDS
    """Seconds without a sign of life after which a run is taken over from its worker."""
    dry_run: bool = False
    """Only say what the plan costs, from step times measured now on this machine."""
    status: str | None = None
    """Only say how far the sweep in this folder or URL is."""
    plan: Path | None = None
    """Only write the plan to this file, to be read, edited and run."""
    objectives: str | None = None
    """Methods, by commas."""
    domains: str | None = None
    """Domains, by commas."""
    seeds: str = "0"
    """0-4, or 0,3,7."""
    tasks: str = ""
    """Finetune to these tasks, by commas; a domain stands for all its tasks."""
    scratch: bool = False
    """Also learn each task from scratch."""
    scale: str = "laptop"
    """smoke, laptop or paper."""
    set: tuple[str, ...] = ()
    """NAME=VALUE[,VALUE…] of the pre-trainings, finetune.NAME=… of the finetunings; all combinations are run."""
    quiet: bool = False
    """Show no progress."""


def sweep(file: Path | None, options: SweepOptions) -> int:
    """The exit code: 0 if all is done, 1 if a run failed."""
    if options.status is not None:
        print_status(options.status)
        return 0
    plan = _plan(file, options)
    if options.plan is not None:
        plan.write(options.plan)
        print(f"{options.plan}: {len(plan.runs)} runs; `cic sweep {options.plan} --out FOLDER` runs them")
        return 0
    from cic.sweep.completion import make_jobs

    jobs = [_with_needs(job, options) for job in make_jobs(plan)]
    if options.dry_run:
        print_cost(plan, jobs)
        return 0
    from cic.sweep.run import Means

    return _finish(plan, jobs, options.out, Means(options.address, options.slots, options.lease, options.quiet))


def _plan(file: Path | None, options: SweepOptions) -> Plan:
    by_options = options.objectives is not None or options.domains is not None or options.scratch
    if (file is not None) == by_options:
        raise UserError("give either a plan or --objectives and --domains, for example: cic sweep plan.json --out runs")
    if file is not None:
        given = {name for name in ("seeds", "tasks", "scale", "set") if getattr(options, name) != _DEFAULT[name]}
        if given:
            raise UserError(f"--{min(given)} makes a plan, but {file} is one already: edit it, or drop the flag")
        plan = read_plan(file)
        if plan.version != __version__:
            print(f"cic: {file} was made by cic {plan.version}; its defaults may differ here", file=sys.stderr)
        return plan
    from cic.sweep.grid import Grid, parse_seeds

    if (options.objectives is None) != (options.domains is None):
        raise UserError("--objectives and --domains go together")
    if options.scratch and not options.tasks:
        raise UserError("--scratch needs --tasks")
    return Grid(
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


def _with_needs(job: Job, options: SweepOptions) -> Job:
    given = {name: getattr(options, name) for name in ("cpus", "gpus", "memory") if getattr(options, name) is not None}
    return dataclasses.replace(job, needs=dataclasses.replace(job.needs, **given)) if given else job


def _finish(plan: Plan, jobs: Sequence[Job], out: str, means: Any) -> int:
    from cic.sweep.run import run_plan

    ended = run_plan(plan, out, means, jobs)
    print(ended.summary(out))
    return 1 if ended.failed else 0


def run_small(plan: Plan, out: Path | None, quiet: bool) -> int:
    """The sweeps behind `cic pretrain --seeds` and `cic finetune RUN… --task DOMAIN`."""
    from cic.sweep.completion import make_jobs
    from cic.sweep.run import Means

    return _finish(plan, make_jobs(plan), str(out or "runs"), Means(quiet=quiet))


def print_status(where: str) -> None:
    from rich.console import Console

    from cic.sweep.status import read_status, rows
    from cic.sweep.storage import open_storage
    from cic.sweep.table import table

    progress = read_status(open_storage(where))
    Console().print(table(rows(progress)))
    for run in progress:
        if run.state == "failed":
            print(f"failed: {run.job.name} ({where}/{run.job.folder}): {run.message}")


def print_cost(plan: Plan, jobs: Sequence[Job]) -> None:
    from cic.sweep.completion import complete_configs
    from cic.sweep.cost import estimate

    configs = complete_configs(plan)
    by_folder = {job.folder: configs[job.name] for job in jobs}
    print(estimate(jobs, by_folder, lambda text: print(f"cic: {text}", file=sys.stderr, flush=True)).text())


def finetunings(
    runs: Sequence[Path], task: str, seeds: Iterable[int] | None, settings: dict[str, Any], at: int | None
) -> Plan:
    """Existing pre-trainings to a task, or to all tasks of a domain; seeds by default those of the pre-trainings."""
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
