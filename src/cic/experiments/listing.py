"""The list of experiments, their questions and how many runs they have at each scale."""

from __future__ import annotations

from cic.experiments.all_experiments import EXPERIMENTS
from cic.experiments.experiment import SCALES, ExperimentSetup


def table() -> tuple[list[str], list[list[str]]]:
    """Return header and rows."""
    rows = []
    for experiment in EXPERIMENTS.values():
        runs = [len(experiment.runs(ExperimentSetup(scale))) for scale in SCALES]
        rows.append([experiment.name, *map(str, runs), experiment.question])
    return ["name", *(f"{scale} runs" for scale in SCALES), "question"], rows
