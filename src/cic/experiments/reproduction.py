"""`cic reproduce`: make the plan, do what is missing, measure, draw, and say what came out."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from cic import __version__
from cic.core.errors import UserError
from cic.experiments.base import Experiment, Found, Member, Outcome, Planned, Setup
from cic.experiments.experiment_page import write_page
from cic.experiments.measuring import measure, read_measured
from cic.experiments.output_folder import Folder
from cic.experiments.plans import merged, planned
from cic.experiments.registry import experiments, get_experiment
from cic.experiments.reproduce_options import ReproduceOptions
from cic.report import figures, tables
from cic.report.tables import Table, many
from cic.runs.records import read_run
from cic.runs.storage import write_json

ALL = "all"
FIGURES = ("png", "pdf")


@dataclass(frozen=True)
class Drawn:
    """An experiment and what was made of it."""

    experiment: Experiment
    setup: Setup
    found: Found
    outcome: Outcome

    @property
    def command(self) -> str:
        """What makes it again."""
        words = ["cic reproduce", self.experiment.name, "--scale", self.setup.scale]
        words += ["--seeds", ",".join(map(str, self.setup.seeds))] if self.setup.seeds else []
        words += ["--domain", self.setup.domain] if self.setup.domain else []
        words += ["--set", *self.setup.settings] if self.setup.settings else []
        return " ".join(words)


def reproduce(name: str, options: ReproduceOptions) -> int:
    """The exit code: 0 if all is there, 1 if a run failed or is missing."""
    chosen = list(experiments().values()) if name == ALL else [get_experiment(name)]
    folder = Folder(options.out)
    if options.draw:
        return _draw_only(chosen, folder, name)
    setups = {experiment.name: _setup(experiment, options, alone=name != ALL) for experiment in chosen}
    plans = {experiment.name: planned(experiment, setups[experiment.name]) for experiment in chosen}
    plan = merged(plans.values())
    if options.plan is not None:
        plan.write(options.plan)
        print(f"{options.plan}: {many(len(plan.runs), 'run')}")
        return 0
    if options.dry_run:
        from cic.sweep.command import print_cost
        from cic.sweep.resolve import resolve

        print_cost(plan, resolve(plan))
        return 0
    _require_plotting()
    from cic.sweep.driver import ExecutionOptions, run_plan

    execution = ExecutionOptions(options.address, options.slots, options.quiet)
    folder.prepare(options.scale)
    for experiment in chosen:
        folder.remember(experiment.name, setups[experiment.name], plans[experiment.name])
    ended = run_plan(plan, str(folder.runs), execution)
    if ended.failed:
        print(ended.summary(str(folder.runs)), file=sys.stderr)
    drawn = [_draw(e, setups[e.name], plans[e.name], folder, measures=True, quiet=options.quiet) for e in chosen]
    return _finish(drawn, folder, name)


def _setup(experiment: Experiment, options: ReproduceOptions, alone: bool) -> Setup:
    setup = options.setup()
    return replace(setup, domain=None) if experiment.own_domain and not alone else setup


def _draw_only(chosen: Sequence[Experiment], folder: Folder, name: str) -> int:
    _require_plotting()
    if folder.made is None:
        raise UserError(f"{folder.path} holds no experiments yet: leave out --draw to run some")
    if folder.made.get("version") != __version__:
        print(f"cic: note: {folder.path} was made by cic {folder.made.get('version')}", file=sys.stderr)
    drawn = []
    for experiment in chosen:
        kept = folder.recall(experiment.name)
        if kept is not None:
            drawn.append(_draw(experiment, *kept, folder, measures=False))
        elif name != ALL:
            raise UserError(f"{experiment.name} was not run in {folder.path}: leave out --draw to run it")
    if not drawn:
        raise UserError(f"no experiment was run in {folder.path}: leave out --draw to run some")
    return _finish(drawn, folder, name)


def _require_plotting() -> None:
    if find_spec("matplotlib") is None:
        raise UserError("figures need matplotlib: pip install 'cic[report]'")


# ---- one experiment --------------------------------------------------------------------------------------------


def _draw(
    experiment: Experiment, setup: Setup, plan: Sequence[Planned], folder: Folder, measures: bool, quiet: bool = True
) -> Drawn:
    notices: list[str] = []
    members = [_member(experiment, setup, run, folder, measures, quiet, notices) for run in plan]
    found = Found(setup, members, notices)
    _note_gaps(found)
    outcome = _outcome(experiment, found)
    drawn = Drawn(experiment, setup, found, outcome)
    with folder.held():
        _write(drawn, folder.of(experiment.name))
    return drawn


def _outcome(experiment: Experiment, found: Found) -> Outcome:
    """One experiment whose folders hold something odd costs its own figure, not that of the others."""
    try:
        return experiment.outcome(found)
    except Exception as error:
        found.notices.append(f"the figure could not be made ({type(error).__name__}: {error})")
        return Outcome((), "The figure could not be made.")


def _member(
    experiment: Experiment, setup: Setup, run: Planned, folder: Folder, measures: bool, quiet: bool, notices: list[str]
) -> Member:
    path = folder.runs / run.entry.name
    record = read_run(path) if (path / "config.json").exists() else None
    if isinstance(record, str):
        notices.append(record)
        record = None
    member = Member(run.variant, run.entry, record)
    if record is None or not record.finished or run.entry.kind != "pretrain":
        return member
    measured: dict[str, Mapping[str, object]] = {}
    for name, measurement in experiment.measurements.items():
        kept = read_measured(path, name, setup.scale)
        if kept is None and measures:
            if not quiet:
                print(f"cic: measuring {name} of {path.name}", file=sys.stderr, flush=True)
            try:
                kept = measure(path, name, setup.scale, measurement)
            except Exception as error:  # weights that are gone or damaged, a simulation that fails: the others go on
                notices.append(f"{path.name} could not be measured: {error}")
        if kept is not None:
            measured[name] = kept
        elif not measures:
            notices.append(f"{path.name} was not measured yet: leave out --draw to do so")
    return replace(member, measured=measured)


def _note_gaps(found: Found) -> None:
    """Which runs are not there, and why."""
    for member in found.members:
        if member.record is None:
            found.notices.append(f"{member.entry.name} is missing: the same command runs it")
        elif not member.done:
            reason = f" ({member.record.message})" if member.record.message else ""
            found.notices.append(f"{member.entry.name} is {member.record.state}{reason}: the same command continues it")
    versions = sorted({record.version for record in found.records if record.version} - {__version__})
    if versions:
        found.notices.append(f"some runs were made by cic {', '.join(versions)}, this is {__version__}")


def _write(drawn: Drawn, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for plot in drawn.outcome.plots:
        if plot.panels:
            figures.save(plot, folder, FIGURES)
    for table in drawn.outcome.tables:
        tables.write(table, folder)
    data = Table("data", "", "", (), (), records=drawn.outcome.data)
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
            "said": drawn.outcome.said,
            "runs": len(members),
            "done": sum(member.done for member in members),
            "missing": [member.entry.name for member in members if not member.done],
            "notices": drawn.found.notices,
        },
    )


def _finish(drawn: Sequence[Drawn], folder: Folder, name: str) -> int:
    for one in drawn:
        print(f"{one.experiment.name}: {one.outcome.said}")
        for notice in one.found.notices:
            print(f"cic: note: {notice}", file=sys.stderr)
    page = folder.path / "index.html" if name == ALL else folder.of(name) / "page.html"
    with folder.held():
        write_page(page, drawn)
    print(f"{page}: {many(len(drawn), 'experiment')}")
    whole = all(one.outcome.plots and all(member.done for member in one.found.members) for one in drawn)
    return 0 if whole else 1
