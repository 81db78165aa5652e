"""`cic.sweep`: plan, cost, execution and status."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cic import __version__
from cic.core.config import require, with_fields
from cic.core.errors import UserError
from cic.sweep.plan import Plan, read_plan
from cic.sweep.specs import RunSpec

if TYPE_CHECKING:
    from cic.sweep.cost import Cost
    from cic.sweep.driver import SweepResult
    from cic.sweep.progress import RunProgress


@dataclass(frozen=True)
class GridOptions:
    """The runs of a new plan: objectives × domains × seeds × settings, and their finetunings."""

    objectives: tuple[str, ...] = ()
    """Methods, separated by commas."""
    domains: tuple[str, ...] = ()
    """Domains, separated by commas."""
    seeds: str = "0"
    """0-4, or 0,3,7."""
    tasks: tuple[str, ...] = ()
    """Finetune to these tasks, separated by commas; a domain stands for all its tasks."""
    scratch: bool = False
    """Also train each task from scratch."""
    scale: str = "laptop"
    """smoke, laptop or paper."""
    set: tuple[str, ...] = ()
    """NAME=VALUE[,VALUE…] for pre-trainings, finetune.NAME=… for finetunings; all combinations are run."""


@dataclass(frozen=True)
class SweepOptions:
    """Where a plan is executed."""

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
    quiet: bool = False
    """Show no progress."""

    def __post_init__(self) -> None:
        require(self.slots is None or self.slots >= 1, f"slots must be at least 1, not {self.slots}")


def sweep(plan: Plan | Path | str | None = None, options: SweepOptions | None = None, **fields: Any) -> SweepResult:
    """Execute many runs on this machine's cores or on a Ray cluster.

    Runs that are finished already are skipped: after an interruption, the same call continues the sweep.

    Args:
        plan: A plan, or its JSON file. By default the fields of `GridOptions` make the plan.
        options: Where the plan is executed.
        **fields: Fields of `GridOptions` and `SweepOptions` by name; the latter override `options`. Lists may be lists
            of strings, and `seeds` may be numbers.

    Returns:
        The runs that are done, the runs that failed, and the runs that were not started because of that.

    Example:
        ```python
        grid = {"objectives": ["cic", "rnd"], "domains": "gridworld", "seeds": [0], "tasks": "gridworld-reach_top_left"}
        result = cic.sweep(**grid, scale="smoke", out="runs")
        print(result.summary("runs"))
        ```
    """
    where = {name: fields.pop(name) for name in list(fields) if name in _names(SweepOptions)}
    options = with_fields(options or SweepOptions(), {name: _text(value) for name, value in where.items()})
    plan = sweep_plan(plan, **fields)
    from cic.sweep.driver import run_plan

    return run_plan(plan, options, _specs(plan, options))


def sweep_plan(plan: Plan | Path | str | None = None, options: GridOptions | None = None, **fields: Any) -> Plan:
    """Make the plan of a sweep without executing it, or read it from a file.

    Args:
        plan: The JSON file of a plan. By default the fields of `GridOptions` make the plan.
        options: The runs of a new plan.
        **fields: Fields of `GridOptions` by name; they override `options`.

    Returns:
        The plan: `plan.write(path)` writes it to a JSON file, and `cic.sweep(plan)` executes it.

    Example:
        ```python
        plan = cic.sweep_plan(objectives="cic", domains="gridworld", seeds="0-2", scale="smoke")
        plan.write("plan.json")
        ```
    """
    if "seeds" in fields and not isinstance(fields["seeds"], str):
        fields["seeds"] = ",".join(map(str, fields["seeds"]))
    options = with_fields(options or GridOptions(), fields)
    if (plan is not None) == bool(options.objectives or options.domains or options.scratch):
        raise UserError("give either a plan or `objectives` and `domains`")
    if plan is not None:
        default = GridOptions()
        given = sorted(name for name in _names(GridOptions) if getattr(options, name) != getattr(default, name))
        if given:
            raise UserError(f"`{given[0]}` is for a new plan, but {plan} is a plan: edit it, or omit `{given[0]}`")
        return plan if isinstance(plan, Plan) else _read(Path(plan))
    from cic.sweep.grid import RunGrid, parse_seeds

    if bool(options.objectives) != bool(options.domains):
        raise UserError("`objectives` and `domains` must be given together")
    if options.scratch and not options.tasks:
        raise UserError("`scratch` needs `tasks`")
    return RunGrid(
        objectives=_words(options.objectives),
        domains=_words(options.domains),
        seeds=parse_seeds(options.seeds),
        scale=options.scale,
        tasks=_words(options.tasks),
        scratch=options.scratch,
        settings=options.set,
    ).plan()


def _read(file: Path) -> Plan:
    plan = read_plan(file)
    if plan.version != __version__:
        warnings.warn(f"{file} was made by cic {plan.version}; its defaults may differ here", stacklevel=3)
    return plan


def sweep_cost(plan: Plan | Path | str, options: SweepOptions | None = None, **fields: Any) -> Cost:
    """Estimate the cost of a plan from the speed of short runs on this machine.

    Args:
        plan: A plan, or its JSON file.
        options: Where the plan would be executed: cores, GPUs and memory per run.
        **fields: Fields of `SweepOptions` by name; they override `options`.

    Returns:
        Seconds per run; `text()` has the totals.

    Example:
        ```python
        cost = cic.sweep_cost(cic.sweep_plan(objectives="cic", domains="gridworld", scale="smoke"))
        print(cost.text())
        ```
    """
    options = with_fields(options or SweepOptions(), fields)
    from cic.sweep.cost import estimate
    from cic.sweep.resolve import resolve_configs

    plan = sweep_plan(plan)
    return estimate(_specs(plan, options), resolve_configs(plan))


def sweep_status(out: Path | str) -> list[RunProgress]:
    """Read the progress of a sweep from its folder, on any machine that sees it.

    Args:
        out: The folder or URL that was `out` of the sweep.

    Returns:
        The state, step and speed of every run.

    Example:
        ```python
        for run in cic.sweep_status("runs"):
            print(run.spec.name, run.state, run.step)
        ```
    """
    from cic.sweep.progress import read_status
    from cic.sweep.store import Store

    return read_status(Store(str(out)))


def _names(cls: type) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _words(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for text in texts for word in text.split(",") if word.strip()))


def _specs(plan: Plan, options: SweepOptions) -> list[RunSpec]:
    """Return the resolved runs with the resources that were given."""
    from cic.sweep.resolve import resolve

    given = {name: getattr(options, name) for name in ("cpus", "gpus", "memory") if getattr(options, name) is not None}
    return [
        dataclasses.replace(spec, needs=dataclasses.replace(spec.needs, **given)) if given else spec
        for spec in resolve(plan)
    ]
