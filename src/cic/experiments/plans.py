"""Experiments → one plan: runs that several of them need are in it once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cic.core.errors import UserError
from cic.experiments.base import Experiment, Planned, Setup
from cic.sweep.completion import make_jobs
from cic.sweep.plan import Entry, Plan


def planned(experiment: Experiment, setup: Setup) -> list[Planned]:
    """The experiment's runs, each named by the folder that it will have: the same run has the same name everywhere."""
    found = experiment.runs(setup)
    try:
        jobs = make_jobs(Plan(tuple(run.entry for run in found)))
    except UserError as error:
        raise UserError(f"{experiment.name}: {error}") from None
    folders = {job.name: job.folder for job in jobs}
    return [
        Planned(
            run.variant,
            replace(run.entry, name=folders[run.entry.name], after=tuple(folders[name] for name in run.entry.after)),
        )
        for run in found
    ]


def merged(parts: Iterable[Iterable[Planned]]) -> Plan:
    entries: dict[str, Entry] = {}
    for part in parts:
        entries |= {run.entry.name: run.entry for run in part}
    return Plan(tuple(entries.values()))
