"""The experiments by name, and the plan of several of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cic.core.errors import UserError, unknown
from cic.experiments.beyond import Beyond
from cic.experiments.experiment import SCALES, Experiment, ExperimentSetup, PlannedRun
from cic.experiments.paper.adaptation import Adaptation
from cic.experiments.paper.dimension import Dimension
from cic.experiments.paper.domain_curves import DomainCurves
from cic.experiments.paper.flow import Flow
from cic.experiments.paper.gridworld_skills import GridworldSkills
from cic.experiments.paper.gym_vs_dmc import GymVsDMC
from cic.experiments.paper.main import Main
from cic.experiments.paper.projection import Projection
from cic.experiments.paper.qualitative_skills import QualitativeSkills
from cic.experiments.paper.representation import Representation
from cic.experiments.paper.rewards import Rewards
from cic.experiments.paper.skill_sweep import SkillSweep
from cic.experiments.paper.static import Static
from cic.sweep.plan import Entry, Plan
from cic.sweep.resolve import resolve

_CLASSES: tuple[type[Experiment], ...] = (
    Main,
    DomainCurves,
    Rewards,
    Representation,
    Projection,
    Dimension,
    Adaptation,
    SkillSweep,
    GymVsDMC,
    GridworldSkills,
    Flow,
    Static,
    QualitativeSkills,
    Beyond,
)
"""In the order of the paper, then what the paper does not have."""
EXPERIMENTS = {cls.name: cls() for cls in _CLASSES}


def experiments() -> dict[str, Experiment]:
    """List the tables and figures of the paper that `cic.reproduce` can reproduce.

    Returns:
        Experiments by name, each with its `question` and the `claim` of the paper.

    Example:
        ```python
        for name, experiment in cic.experiments().items():
            print(name, experiment.question)
        ```
    """
    return dict(EXPERIMENTS)


def get_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, [*EXPERIMENTS, "all"])
    return EXPERIMENTS[name]


def plan_runs(experiment: Experiment, setup: ExperimentSetup) -> list[PlannedRun]:
    """Plan the experiment's runs, each named by its folder: the same run has the same name in every experiment."""
    found = experiment.runs(setup)
    try:
        specs = resolve(Plan(tuple(run.entry for run in found)))
    except UserError as error:
        raise UserError(f"{experiment.name}: {error}") from None
    folders = {spec.name: spec.folder for spec in specs}
    return [
        replace(
            run,
            entry=replace(
                run.entry, name=folders[run.entry.name], after=tuple(folders[name] for name in run.entry.after)
            ),
        )
        for run in found
    ]


def merge(parts: Iterable[Iterable[PlannedRun]]) -> Plan:
    """Return one plan in which runs that several experiments need occur once."""
    entries: dict[str, Entry] = {}
    for part in parts:
        entries |= {run.entry.name: run.entry for run in part}
    return Plan(tuple(entries.values()))


def listing() -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a table: each experiment, its runs at each scale and its question."""
    rows = []
    for experiment in EXPERIMENTS.values():
        runs = [len(experiment.runs(ExperimentSetup(scale))) for scale in SCALES]
        rows.append([experiment.name, *map(str, runs), experiment.question])
    return ["name", *(f"{scale} runs" for scale in SCALES), "question"], rows
