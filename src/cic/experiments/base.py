"""What an experiment is: a question, the paper's claim, the runs that answer it and the figure that shows the answer.

An experiment names its runs (`runs`), what is to be measured of the finished ones (`measurements`) and what it makes of
all that (`outcome`). Running, resuming, caching and writing files are not its business: `cic.experiments.reproduction`.
The run folders are its only data, and a run that is missing is a gap in the figure, not an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from cic import envs
from cic.core.errors import UserError, unknown
from cic.report import learning_curves
from cic.report.figures import Plot
from cic.report.tables import Table
from cic.runs.contents import Series
from cic.runs.records import RunRecord
from cic.sweep import grid
from cic.sweep.plan import Entry

SCALES = ("smoke", "laptop", "paper")
DDPG = "ddpg"
PROTOCOL = {"search": "paper", "prior_data": 0.0}  # the paper's: its own search, and weights are all that is inherited


T = TypeVar("T")


def by_scale(smoke: T, laptop: T, paper: T) -> Mapping[str, T]:
    """What an experiment takes of something at each scale."""
    return dict(zip(SCALES, (smoke, laptop, paper), strict=True))


@dataclass(frozen=True)
class Setup:
    """What is asked of an experiment, beside its name."""

    scale: str = "laptop"
    seeds: tuple[int, ...] = ()
    """By default as many as the experiment has at this scale."""
    domain: str | None = None
    """In place of the experiment's own; several with commas between them."""
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
    def before(self) -> dict[str, Any]:
        """Of pre-trainings."""
        return {name: value for name, value in self._chosen.items() if not name.startswith("finetune.")}

    @property
    def after(self) -> dict[str, Any]:
        """Of finetunings."""
        return {
            name.removeprefix("finetune."): value
            for name, value in self._chosen.items()
            if name.startswith("finetune.")
        }

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Planned:
    """A run, and what the figure calls its kind."""

    variant: str
    entry: Entry


@dataclass(frozen=True)
class Member:
    """A planned run and what there is of it."""

    variant: str
    entry: Entry
    record: RunRecord | None
    """None if it was never begun, or cannot be read."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """What each measurement gave."""

    @property
    def seed(self) -> int:
        return int(self.entry.config["seed"])

    @property
    def task(self) -> str:
        return str(self.entry.config.get("task", ""))

    @property
    def domain(self) -> str:
        return str(self.entry.config.get("domain") or envs.split_name(self.task)[0])

    @property
    def done(self) -> bool:
        return self.record is not None and self.record.finished


@dataclass(frozen=True)
class Found:
    """All that an experiment has to draw from."""

    setup: Setup
    members: Sequence[Member]
    notices: list[str] = field(default_factory=list)
    """What needs a second look; grows while the figure is made."""

    @cached_property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(member.variant for member in self.members))

    @property
    def records(self) -> list[RunRecord]:
        """Of the runs that are there, finished or not."""
        return [member.record for member in self.members if member.record is not None]

    @cached_property
    def metrics(self) -> learning_curves.Metrics:
        return learning_curves.load(self.records, self.notices)

    def of(self, variant: str, **where: Any) -> list[Member]:
        """Its finished runs, for example `of("grid", task="walker-run")`."""
        return [
            member
            for member in self.members
            if member.variant == variant
            and member.done
            and all(getattr(member, name) == value for name, value in where.items())
        ]

    def series(self, member: Member, key: str) -> Series | None:
        """One metric of a run."""
        return self.metrics[member.record.path].get(key) if member.record is not None else None

    def label(self, variant: str) -> str:
        """The variant, with its number of runs where some are missing."""
        all_of = [member for member in self.members if member.variant == variant]
        done = sum(member.done for member in all_of)
        return variant if done == len(all_of) else f"{variant} ({done} of {len(all_of)} runs)"


@dataclass(frozen=True)
class Outcome:
    """What came out."""

    plots: tuple[Plot, ...]
    said: str
    """One or two sentences with the numbers."""
    tables: tuple[Table, ...] = ()
    data: Sequence[Mapping[str, Any]] = ()
    """What the figure shows, a dict per point: data.csv."""
    films: tuple[Path, ...] = ()


Measurement = Callable[[Path, str], dict[str, Any]]
"""The folder of a finished run and the scale → JSON. It is made once and kept in the run's folder."""


class Experiment(ABC):
    """One file in `cic.experiments.paper`."""

    name: ClassVar[str]
    title: ClassVar[str]
    shows: ClassVar[str]
    """What of the paper it makes."""
    question: ClassVar[str]
    claim: ClassVar[str]
    """What the paper says."""
    seeds: ClassVar[Mapping[str, int]] = by_scale(2, 3, 3)
    domains: ClassVar[Mapping[str, tuple[str, ...]]]
    """Where it happens, by scale."""
    own_domain: ClassVar[bool] = False
    """It is about its domain, which cannot be another."""
    measurements: ClassVar[Mapping[str, Measurement]] = {}
    """Of its finished pre-trainings."""

    @abstractmethod
    def runs(self, setup: Setup) -> list[Planned]:
        """Pre-trainings before the finetunings that start from them."""

    @abstractmethod
    def outcome(self, found: Found) -> Outcome:
        """The figure and what it says. Runs may be missing, or all of a variant's."""

    # ---- what the subclasses share -----------------------------------------------------------------------------

    def seeds_of(self, setup: Setup) -> tuple[int, ...]:
        return setup.seeds or tuple(range(self.seeds[setup.scale]))

    def domains_of(self, setup: Setup) -> tuple[str, ...]:
        if setup.domain is None:
            return self.domains[setup.scale]
        if self.own_domain:
            raise UserError(f"{self.name} is about {' and '.join(self.domains[setup.scale])}: drop --domain")
        wanted = tuple(dict.fromkeys(name.strip() for name in setup.domain.split(",")))
        for domain in wanted:
            if domain not in envs.domains():
                raise unknown("domain", domain, envs.domains())
        if len(wanted) > 1 and len(self.domains["paper"]) == 1:
            raise UserError(f"{self.name} shows one domain: give --domain one of {', '.join(wanted)}")
        return wanted


def pretrain(setup: Setup, variant: str, domain: str, seed: int, objective: str = "cic", **settings: Any) -> Planned:
    """A pre-training at the setup's scale; what the user set counts before what the experiment did."""
    name = f"{objective}-{domain}-s{seed}-{variant}"
    return Planned(variant, grid.pretraining(name, domain, objective, seed, setup.scale, settings | setup.before))


def finetune(setup: Setup, before: Planned, task: str, variant: str | None = None, **settings: Any) -> Planned:
    """A finetuning of a planned pre-training: as the paper does it, or at `laptop` by all that the scale has."""
    protocol = {} if setup.scale == "laptop" else PROTOCOL
    config = {"task": task, "seed": before.entry.config["seed"], **protocol, **settings, **setup.after}
    name = f"{before.entry.name}-{task}-{variant or ''}"
    return Planned(variant or before.variant, Entry(name, "finetune", config, (before.entry.name,)))


def scratch(setup: Setup, task: str, seed: int) -> Planned:
    """The task without pre-training."""
    config = {"task": task, "scale": setup.scale, "seed": seed, **setup.after}
    return Planned(DDPG, Entry(f"scratch-{task}-s{seed}", "finetune", config))


def first_tasks(domain: str, count: int) -> list[str]:
    """Complete names of a domain's first tasks: `walker-stand`, …"""
    return [f"{domain}-{task}" for task in envs.domains()[domain].tasks[:count]]


def tasks_of(domain: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """Those of the wanted tasks that a domain has; all of its tasks if it has none of them."""
    known = envs.domains()[domain].tasks
    return tuple(task for task in wanted if task in known) or known


# ---- the registry ----------------------------------------------------------------------------------------------

_REGISTRY: dict[str, Experiment] = {}
E = TypeVar("E", bound=type[Experiment])


def register(cls: E) -> E:
    """Class decorator: `cic reproduce NAME` finds it by its `name`."""
    _REGISTRY[cls.name] = cls()
    return cls


def registered() -> dict[str, Experiment]:
    return dict(_REGISTRY)
