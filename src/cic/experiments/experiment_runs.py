"""An experiment's runs as they are: finished, unfinished or missing, from run folders or from a study's tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cic import __version__, envs
from cic.experiments.experiment import ExperimentSetup
from cic.report import learning_curves
from cic.report.collapse import marked, soundness, unsound_notices
from cic.report.statistics import normalised
from cic.runs.contents import Series
from cic.runs.records import RunRecord
from cic.sweep.plan import Entry


@dataclass(frozen=True)
class ExperimentRun:
    """A planned run and what exists of it."""

    variant: str
    entry: Entry
    record: RunRecord | None
    """None if the run was never started, or cannot be read."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """Measurement → its values."""
    files: Path | None = None
    """The folder of pictures and films that measurements left."""

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
class ExperimentRuns:
    """All data of an experiment."""

    setup: ExperimentSetup
    members: Sequence[ExperimentRun]
    notices: list[str] = field(default_factory=list)
    """Warnings; grows while the result is computed."""

    @cached_property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(member.variant for member in self.members))

    @property
    def records(self) -> list[RunRecord]:
        """Of the runs that exist, finished or not."""
        return [member.record for member in self.members if member.record is not None]

    @cached_property
    def metrics(self) -> learning_curves.Metrics:
        return learning_curves.load(self.records, self.notices)

    def of(self, variant: str, **where: Any) -> list[ExperimentRun]:
        """Return the variant's finished runs, for example `of("grid", task="walker-run")`."""
        return [
            member
            for member in self.members
            if member.variant == variant
            and member.done
            and all(getattr(member, name) == value for name, value in where.items())
        ]

    def scores(
        self, variants: Iterable[str], normalise: bool = True, **where: Any
    ) -> list[tuple[ExperimentRun, float]]:
        """Return the finished finetunings of the variants with their returns, by default as share of the expert's."""
        return [
            (member, normalised(member.task, member.record.score) if normalise else member.record.score)
            for variant in variants
            for member in self.of(variant, **where)
            if member.task and member.record is not None
        ]

    def series(self, member: ExperimentRun, key: str) -> Series | None:
        """Return one metric of a run."""
        return self.metrics[member.record.path].get(key) if member.record is not None else None

    def label(self, variant: str) -> str:
        """Return the variant, with its number of runs if some are missing, and of those that are not sound."""
        all_of = [member for member in self.members if member.variant == variant]
        done = sum(member.done for member in all_of)
        label = variant if done == len(all_of) else f"{variant} ({done} of {len(all_of)} runs)"
        return marked(label, [member.record.name for member in all_of if member.record is not None], self.sound)

    @cached_property
    def sound(self) -> dict[str, bool | None]:
        """For each run by name, whether it passed the validity checks; None if it was not checked."""
        return soundness(self.records)

    @property
    def sound_text(self) -> str:
        """How many runs passed the validity checks, for example "3 of 4 checked runs"."""
        checked = [one for one in self.sound.values() if one is not None]
        return f"{sum(checked)} of {len(checked)} checked runs"

    def add_notices(self) -> None:
        """Note missing and unfinished runs, collapsed pre-trainings and runs of other versions."""
        for member in self.members:
            if member.record is None:
                self.notices.append(f"{member.entry.name} is missing: the same command runs it")
            elif not member.done:
                reason = f" ({member.record.message})" if member.record.message else ""
                state = f"{member.entry.name} is {member.record.state}{reason}"
                self.notices.append(f"{state}: the same command continues it")
        self.notices.extend(unsound_notices(self.records, self.sound))
        versions = sorted({record.version for record in self.records if record.version} - {__version__})
        if versions:
            self.notices.append(f"some runs were made by cic {', '.join(versions)}, this is {__version__}")
