"""The parts of an experiment: a question, the paper's claim, the runs that answer it and the figure of the answer.

An experiment plans its runs (`runs`), names what is measured of the finished ones (`measurements`) and computes its
result from both (`result`). Running, resuming, caching and writing files is the task of `cic.experiments.reproduction`.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cic import envs
from cic.core.errors import UserError, unknown
from cic.report.figures import Plot
from cic.report.tables import Table
from cic.sweep import grid
from cic.sweep.plan import Entry

if TYPE_CHECKING:
    from cic.experiments.experiment_runs import ExperimentRuns

SCALES = ("smoke", "laptop", "paper")
DDPG = "ddpg"
PROTOCOL = {"search": "paper", "prior_data": 0.0}
"""The paper's finetuning: its own skill search, and only weights are inherited."""

T = TypeVar("T")


def by_scale(smoke: T, laptop: T, paper: T) -> Mapping[str, T]:
    """Return the value of a setting at each scale."""
    return dict(zip(SCALES, (smoke, laptop, paper), strict=True))


@dataclass(frozen=True)
class ExperimentSetup:
    """The user's choices for an experiment."""

    scale: str = "laptop"
    seeds: tuple[int, ...] = ()
    """By default as many as the experiment has at this scale."""
    domain: str | None = None
    """Replaces the domain of the experiment; separate several by commas."""
    settings: tuple[str, ...] = ()
    """`steps=20000`, `finetune.steps=4000`: of all its runs."""

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise unknown("scale", self.scale, SCALES)
        self._chosen  # noqa: B018  its own checks

    @cached_property
    def _chosen(self) -> dict[str, Any]:
        chosen = {}
        for text in self.settings:
            name, values = grid.parse_setting(text)
            if len(values) > 1:
                raise UserError(f'an experiment takes one value of each setting, not "{text}"')
            chosen[name.removeprefix("pretrain.")] = values[0]
        return chosen

    @property
    def pretrain_settings(self) -> dict[str, Any]:
        return {name: value for name, value in self._chosen.items() if not name.startswith("finetune.")}

    @property
    def finetune_settings(self) -> dict[str, Any]:
        prefix = "finetune."
        return {name.removeprefix(prefix): value for name, value in self._chosen.items() if name.startswith(prefix)}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class PlannedRun:
    """A run, and the variant of the experiment that it belongs to."""

    variant: str
    entry: Entry


@dataclass(frozen=True)
class ExperimentResult:
    """Figures, tables and a summary."""

    plots: tuple[Plot, ...]
    summary: str
    """One or two sentences with the numbers."""
    tables: tuple[Table, ...] = ()
    data: Sequence[Mapping[str, Any]] = ()
    """The content of the figure, a dict per point: data.csv."""
    films: tuple[Path, ...] = ()


Measurement = Callable[[Path, str], dict[str, Any]]
"""The folder of a finished run and the scale → JSON. It is measured once and stored in the run's folder."""


class Experiment(ABC):
    """One file in `cic.experiments.paper`."""

    name: ClassVar[str]
    title: ClassVar[str]
    shows: ClassVar[str]
    """The figure or table of the paper that it reproduces."""
    question: ClassVar[str]
    claim: ClassVar[str]
    """The paper's answer."""
    seeds: ClassVar[Mapping[str, int]] = by_scale(2, 3, 3)
    domains: ClassVar[Mapping[str, tuple[str, ...]]]
    own_domain: ClassVar[bool] = False
    """The domain cannot be replaced by another."""
    measurements: ClassVar[Mapping[str, Measurement]] = {}
    """Of its finished pre-trainings."""

    pretrainings: ClassVar[Mapping[str, Mapping[str, Any]]] = {"CIC": {}}
    """Variant → settings of its pre-training; `objective` is CIC unless they contain it."""

    def pretrainings_at(self, scale: str) -> Mapping[str, Mapping[str, Any]]:
        """Return `pretrainings` at a scale, if they depend on it."""
        return self.pretrainings

    def runs(self, setup: ExperimentSetup) -> list[PlannedRun]:
        """Plan the runs, pre-trainings before the finetunings that start from them; by default `pretrainings`."""
        return [
            pretrain(setup, variant, domain, seed, **settings)
            for domain, seed in self.domains_and_seeds(setup)
            for variant, settings in self.pretrainings_at(setup.scale).items()
        ]

    @abstractmethod
    def result(self, found: ExperimentRuns) -> ExperimentResult:
        """Compute the figure and its summary. Runs may be missing, or all of a variant's."""

    def domains_and_seeds(self, setup: ExperimentSetup) -> Iterator[tuple[str, int]]:
        """Yield every domain with every seed."""
        return itertools.product(self.domains_of(setup), self.seeds_of(setup))

    def seeds_of(self, setup: ExperimentSetup) -> tuple[int, ...]:
        return setup.seeds or tuple(range(self.seeds[setup.scale]))

    def domains_of(self, setup: ExperimentSetup) -> tuple[str, ...]:
        if setup.domain is None:
            return self.domains[setup.scale]
        if self.own_domain:
            raise UserError(f"{self.name} is about {' and '.join(self.domains[setup.scale])}: omit `domain`")
        wanted = tuple(dict.fromkeys(name.strip() for name in setup.domain.split(",")))
        for domain in wanted:
            if domain not in envs.domains():
                raise unknown("domain", domain, envs.domains())
        if len(wanted) > 1 and len(self.domains["paper"]) == 1:
            raise UserError(f"{self.name} shows one domain: set `domain` to one of {', '.join(wanted)}")
        return wanted


def pretrain(
    setup: ExperimentSetup, variant: str, domain: str, seed: int, objective: str = "cic", **settings: Any
) -> PlannedRun:
    """Plan a pre-training; the user's settings override the experiment's. CIC has the loss of the released code."""
    if objective == "cic" and setup.scale != "smoke":
        settings = {"preset": "released"} | settings
    name = f"{objective}-{domain}-s{seed}-{variant}"
    merged = settings | setup.pretrain_settings
    return PlannedRun(variant, grid.pretraining(name, domain, objective, seed, setup.scale, merged))


def finetune(
    setup: ExperimentSetup, before: PlannedRun, task: str, variant: str | None = None, **settings: Any
) -> PlannedRun:
    """Plan a finetuning: with the paper's protocol, or at `laptop` with the scale's defaults."""
    protocol = {} if setup.scale == "laptop" else PROTOCOL
    config = {"task": task, "seed": before.entry.config["seed"], **protocol, **settings, **setup.finetune_settings}
    name = f"{before.entry.name}-{task}-{variant or ''}"
    return PlannedRun(variant or before.variant, Entry(name, "finetune", config, (before.entry.name,)))


def scratch(setup: ExperimentSetup, task: str, seed: int) -> PlannedRun:
    """Plan a run of the task without pre-training."""
    config = {"task": task, "scale": setup.scale, "seed": seed, **setup.finetune_settings}
    return PlannedRun(DDPG, Entry(f"scratch-{task}-s{seed}", "finetune", config))


def first_tasks(domain: str, count: int) -> list[str]:
    """Return the complete names of a domain's first tasks: `walker-stand`, …"""
    return [f"{domain}-{task}" for task in envs.domains()[domain].tasks[:count]]


def tasks_of(domain: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return those of the wanted tasks that a domain has; all of its tasks if it has none of them."""
    known = envs.domains()[domain].tasks
    return tuple(task for task in wanted if task in known) or known
