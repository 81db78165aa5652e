"""Experiments → one plan: runs that several of them need are in it once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cic.core.errors import UserError
from cic.experiments.base import Experiment, Planned, Setup
from cic.sweep.plan import Entry, Plan
from cic.sweep.resolve import resolve


def planned(experiment: Experiment, setup: Setup) -> list[Planned]:
    """The experiment's runs, each named by the folder that it will have: the same run has the same name everywhere."""
    found = experiment.runs(setup)
    try:
        specs = resolve(Plan(tuple(run.entry for run in found)))
    except UserError as error:
        raise UserError(f"{experiment.name}: {error}") from None
    folders = {spec.name: spec.folder for spec in specs}
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
