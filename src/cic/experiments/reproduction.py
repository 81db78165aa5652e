"""`cic reproduce`: plan, run what is missing, measure, draw and summarise."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cic import __version__
from cic.core.command_text import command_text
from cic.core.config import with_fields
from cic.core.errors import UserError
from cic.experiments.all_experiments import EXPERIMENTS, get_experiment, merge, plan_runs
from cic.experiments.experiment import Experiment, ExperimentResult, ExperimentSetup, PlannedRun
from cic.experiments.experiment_page import write_page
from cic.experiments.experiment_runs import ExperimentRun, ExperimentRuns
from cic.experiments.measurements import measure
from cic.experiments.output_folder import OutputFolder
from cic.experiments.reproduce_options import ReproduceOptions
from cic.report import figures, tables
from cic.report.tables import Table
from cic.runs.records import RunRecord
from cic.runs.storage import write_json
from cic.sweep.plan import Plan

ALL = "all"
FIGURES = ("png", "pdf")


@dataclass(frozen=True)
class DrawnExperiment:
    """An experiment with its runs and its result."""

    experiment: Experiment
    setup: ExperimentSetup
    found: ExperimentRuns
    result: ExperimentResult

    @property
    def command(self) -> str:
        """The command that reproduces it."""
        settings = {
            "scale": self.setup.scale,
            "seeds": ",".join(map(str, self.setup.seeds)) or None,
            "domain": self.setup.domain or None,
            "set": self.setup.settings or None,
        }
        return command_text("reproduce", self.experiment.name, **settings)

    @property
    def complete(self) -> bool:
        return bool(self.result.plots) and all(member.done for member in self.found.members)


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` made."""

    page: Path
    """The HTML page with the figures."""
    drawn: tuple[DrawnExperiment, ...]

    @property
    def summaries(self) -> dict[str, str]:
        """The result of each experiment in words."""
        return {one.experiment.name: one.result.summary for one in self.drawn}

    @property
    def notices(self) -> tuple[str, ...]:
        """Missing runs and other warnings."""
        return tuple(notice for one in self.drawn for notice in one.found.notices)

    @property
    def complete(self) -> bool:
        """Whether no run failed or is missing."""
        return all(one.complete for one in self.drawn)


def reproduce(name: str, options: ReproduceOptions | None = None, **fields: Any) -> Reproduction:
    """Reproduce a table or figure of the paper: run what is missing, measure and draw.

    Args:
        name: An experiment of `cic.experiments()`, or `"all"`.
        options: How the experiment is run.
        **fields: Fields of `ReproduceOptions` by name; they override `options`. `seeds` may be numbers.

    Returns:
        The page with the figures, the results in words, and whether all runs are done.

    Example:
        ```python
        made = cic.reproduce("gridworld", scale="smoke", seeds=[0], out="reproduction")
        print(made.page, made.complete, made.summaries["gridworld"])
        ```
    """
    options = _options(options, fields)
    chosen = _chosen(name)
    folder = OutputFolder(options.out)
    if options.draw:
        return _draw_only(chosen, folder, name)
    setups, plans = _plans(chosen, options, name)
    plan = merge(plans.values())
    _require_plotting()
    from cic.sweep.command import SweepOptions
    from cic.sweep.driver import run_plan

    execution = SweepOptions(str(folder.runs), options.address, options.slots, quiet=options.quiet)
    folder.prepare(options.scale)
    for experiment in chosen:
        folder.write_setup(experiment.name, setups[experiment.name], plans[experiment.name])
    ended = run_plan(plan, execution)
    if ended.failed:
        print(ended.summary(str(folder.runs)), file=sys.stderr)
    drawn = []
    for experiment in chosen:
        setup, runs = setups[experiment.name], plans[experiment.name]
        notices = _measure_missing(experiment, setup, runs, folder, options.quiet)
        drawn.append(_draw(experiment, setup, runs, folder, notices))
    folder.write_tables()
    return _finish(drawn, folder, name)


def reproduce_plan(name: str, options: ReproduceOptions | None = None, **fields: Any) -> Plan:
    """Make the plan of the runs of an experiment without executing it.

    Args:
        name: An experiment of `cic.experiments()`, or `"all"`.
        options: How the experiment is run.
        **fields: Fields of `ReproduceOptions` by name; they override `options`.

    Returns:
        The plan: `cic.sweep_cost(plan)` estimates its cost, and `plan.write(path)` writes it to a file.

    Example:
        ```python
        plan = cic.reproduce_plan("main", scale="laptop", seeds="0-2")
        print(len(plan.runs))
        ```
    """
    return merge(_plans(_chosen(name), _options(options, fields), name)[1].values())


def _options(options: ReproduceOptions | None, fields: dict[str, Any]) -> ReproduceOptions:
    seeds = fields.get("seeds")
    if seeds is not None and not isinstance(seeds, str):
        fields = fields | {"seeds": ",".join(map(str, seeds))}
    return with_fields(options or ReproduceOptions(), fields)


def _chosen(name: str) -> list[Experiment]:
    return list(EXPERIMENTS.values()) if name == ALL else [get_experiment(name)]


def _plans(
    chosen: Sequence[Experiment], options: ReproduceOptions, name: str
) -> tuple[dict[str, ExperimentSetup], dict[str, list[PlannedRun]]]:
    setups = {experiment.name: _setup(experiment, options, alone=name != ALL) for experiment in chosen}
    return setups, {experiment.name: plan_runs(experiment, setups[experiment.name]) for experiment in chosen}


def _setup(experiment: Experiment, options: ReproduceOptions, alone: bool) -> ExperimentSetup:
    setup = options.setup()
    return replace(setup, domain=None) if experiment.own_domain and not alone else setup


def _draw_only(chosen: Sequence[Experiment], folder: OutputFolder, name: str) -> Reproduction:
    _require_plotting()
    if folder.made is None:
        raise UserError(f"{folder.path} holds no experiments yet: omit `draw` to run some")
    if folder.made.get("version") != __version__:
        print(f"cic: note: {folder.path} was made by cic {folder.made.get('version')}", file=sys.stderr)
    drawn = []
    for experiment in chosen:
        stored = folder.read_setup(experiment.name)
        if stored is not None:
            drawn.append(_draw(experiment, *stored, folder))
        elif name != ALL:
            raise UserError(f"{experiment.name} was not run in {folder.path}: omit `draw` to run it")
    if not drawn:
        raise UserError(f"no experiment was run in {folder.path}: omit `draw` to run some")
    return _finish(drawn, folder, name)


def _require_plotting() -> None:
    if find_spec("matplotlib") is None:
        raise UserError("figures need matplotlib: pip install 'cic[report]'")


# ---- one experiment --------------------------------------------------------------------------------------------


def _measure_missing(
    experiment: Experiment, setup: ExperimentSetup, plan: Sequence[PlannedRun], folder: OutputFolder, quiet: bool
) -> list[str]:
    """Measure the finished pre-trainings that have not been measured, and return what went wrong."""
    notices = []
    for run in plan:
        record = folder.record(run.entry.name)
        if not isinstance(record, RunRecord) or record.tables or not record.finished or run.entry.kind != "pretrain":
            continue
        for name, measurement in experiment.measurements.items():
            if folder.measured(record, name, setup.scale) is not None:
                continue
            if not quiet:
                print(f"cic: measuring {name} of {record.name}", file=sys.stderr, flush=True)
            try:
                measure(record.path, name, setup.scale, measurement)
            except Exception as error:  # damaged weights, a failing simulation: the other runs are still measured
                notices.append(f"{record.name} could not be measured: {error}")
    return notices


def _draw(
    experiment: Experiment,
    setup: ExperimentSetup,
    plan: Sequence[PlannedRun],
    folder: OutputFolder,
    notices: Sequence[str] = (),
) -> DrawnExperiment:
    found = _load(experiment, setup, plan, folder)
    found.notices.extend(notices)
    drawn = DrawnExperiment(experiment, setup, found, _result(experiment, found))
    with folder.held():
        _write(drawn, folder.of(experiment.name))
    return drawn


def _load(
    experiment: Experiment, setup: ExperimentSetup, plan: Sequence[PlannedRun], folder: OutputFolder
) -> ExperimentRuns:
    """Read the planned runs and their measurements."""
    found = ExperimentRuns(setup, members := [])
    for run in plan:
        record = folder.record(run.entry.name)
        if isinstance(record, str):
            found.notices.append(record)
            record = None
        measured: dict[str, Any] = {}
        if record is not None and record.finished and run.entry.kind == "pretrain":
            for name in experiment.measurements:
                values = folder.measured(record, name, setup.scale)
                if values is None:
                    found.notices.append(f"{record.name} is not measured: the same command without `draw` measures it")
                else:
                    measured[name] = values
        files = None if record is None else folder.files(record)
        members.append(ExperimentRun(run.variant, run.entry, record, measured, files))
    found.add_notices()
    return found


def _result(experiment: Experiment, found: ExperimentRuns) -> ExperimentResult:
    """Compute the result; damaged data of one experiment must not stop the others."""
    try:
        return experiment.result(found)
    except Exception as error:
        found.notices.append(f"the figure could not be made ({type(error).__name__}: {error})")
        return ExperimentResult((), "The figure could not be made.")


def _write(drawn: DrawnExperiment, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for plot in drawn.result.plots:
        if plot.panels:
            figures.save(plot, folder, FIGURES)
    for table in drawn.result.tables:
        tables.write(table, folder)
    data = Table("data", "", "", (), (), records=drawn.result.data)
    (folder / "data.csv").write_text(tables.to_csv(data), encoding="utf-8")
    members = drawn.found.members
    write_json(
        folder / "summary.json",
        {
            "experiment": drawn.experiment.name,
            "command": drawn.command,
            "version": __version__,
            "question": drawn.experiment.question,
            "claim": drawn.experiment.claim,
            "result": drawn.result.summary,
            "runs": len(members),
            "done": sum(member.done for member in members),
            "sound": drawn.found.sound_text,
            "missing": [member.entry.name for member in members if not member.done],
            "notices": drawn.found.notices,
        },
    )


def _finish(drawn: Sequence[DrawnExperiment], folder: OutputFolder, name: str) -> Reproduction:
    page = folder.path / "index.html" if name == ALL else folder.of(name) / "page.html"
    with folder.held():
        write_page(page, drawn)
    return Reproduction(page, tuple(drawn))
