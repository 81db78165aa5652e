"""The experiments by name."""

from __future__ import annotations

from cic.core.errors import unknown
from cic.experiments import beyond, paper  # noqa: F401  they register
from cic.experiments.base import Experiment, registered


def experiments() -> dict[str, Experiment]:
    """In the order of the paper, then what it does not have."""
    return dict(sorted(registered().items(), key=lambda known: not _of_the_paper(known[1])))


def get_experiment(name: str) -> Experiment:
    known = experiments()
    if name not in known:
        raise unknown("experiment", name, [*known, "all"])
    return known[name]


def _of_the_paper(experiment: Experiment) -> bool:
    return type(experiment).__module__.startswith(paper.__name__)
