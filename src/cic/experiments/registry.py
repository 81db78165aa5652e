"""The experiments by name."""

from __future__ import annotations

import cic.experiments.paper  # noqa: F401  registers
from cic.core.errors import unknown
from cic.experiments.base import Experiment, registered


def experiments() -> dict[str, Experiment]:
    """In the order of the paper."""
    return registered()


def get_experiment(name: str) -> Experiment:
    known = experiments()
    if name not in known:
        raise unknown("experiment", name, [*known, "all"])
    return known[name]
