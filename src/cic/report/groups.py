"""Which runs are one row: runs that may be averaged, and no others.

Runs of one method belong together if they differ in seed, task or domain alone. Runs of different scales, budgets or
settings get rows of their own, with the reason said, unless `mix` asks for their average. Of several budgets the one
with most scores is what the report is about; the others are kept beside it, unless `together` asks for one table.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cic.core.paper_scores import TITLES
from cic.report.budgets import KEYS, Budget, count, divide, words
from cic.report.style import Style, place, styles
from cic.runs.records import RunRecord, flatten

_HARMLESS = {
    "objective",
    "task",
    "domain",
    "seed",
    "pretrained",
    "pretrain_seed",
    "preset",
    "device",
    "threads",
    "compile",
    "wandb",
}
_HARMLESS |= {"log_every", "checkpoint_every", "milestones", "eval_every", "eval_episodes", *KEYS}


@dataclass(frozen=True)
class Group:
    """Runs that are averaged: one row of every table, one colour of every figure."""

    label: str
    method: str
    runs: tuple[RunRecord, ...]

    def scores(self) -> dict[str, list[float]]:
        """Task → returns of its finished runs, by seed; a run that diverged is no score."""
        found: dict[str, list[float]] = {}
        for run in sorted(self.runs, key=lambda run: run.seed):
            if math.isfinite(run.score):
                found.setdefault(run.task, []).append(run.score)
        return found


@dataclass
class Study:
    """All runs of a report, grouped."""

    finetune: list[Group] = field(default_factory=list)
    """The rows of the statistics: all of one budget, unless together was asked for."""
    others: dict[Budget, list[Group]] = field(default_factory=dict)
    """Finetuning with other budgets."""
    pretrain: list[Group] = field(default_factory=list)
    styles: dict[str, Style] = field(default_factory=dict)
    budget: Budget | None = None
    """That of `finetune`, if it has one."""

    @property
    def tuned(self) -> list[Group]:
        """Finetuning with any budget."""
        return [*self.finetune, *(group for groups in self.others.values() for group in groups)]

    @property
    def groups(self) -> list[Group]:
        return [*self.tuned, *self.pretrain]


def study(
    runs: Sequence[RunRecord], mix: bool, split: Sequence[str], notices: list[str], together: bool = False
) -> Study:
    """Group the runs, and say which of a method's runs were kept apart and why."""
    titles = _titles(runs)
    grouper = _Grouper(titles, mix, split, notices)
    finetune, pretrain = ([run for run in runs if run.kind == kind] for kind in ("finetune", "pretrain"))
    parts = divide(finetune)
    result = Study(budget=next(iter(parts)) if len(parts) == 1 else None)
    if mix or together or len(parts) < 2:
        result.finetune = grouper.groups(finetune)
    else:
        result.budget, *others = parts
        result.finetune = grouper.groups(parts[result.budget])
        result.others = {other: grouper.groups(parts[other], words(other, result.budget)) for other in others}
        labels = ", ".join(group.label for groups in result.others.values() for group in groups)
        number = sum(len(parts[other]) for other in others)
        notices.append(
            f"{number} finetuning run(s) have another budget than {', '.join(words(result.budget))} and are in a "
            f"section of their own: {labels}. --budgets together puts them beside the others"
        )
    result.pretrain = grouper.groups(pretrain)
    named = {group.label: group.method for group in result.groups}
    result.styles = styles(sorted(named.items(), key=lambda item: (place(item[1]), natural(item[0]))))
    return result


def _titles(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Method → title. What the runs say of it, if they agree and no other method is called so."""
    said: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        said[run.method].add(run.title)
    titles = {method: found.pop() if len(found) == 1 else TITLES.get(method, method) for method, found in said.items()}
    shared = Counter(titles.values())
    return {method: title if shared[title] == 1 else f"{title} [{method}]" for method, title in titles.items()}


@dataclass(frozen=True)
class _Grouper:
    titles: dict[str, str]
    mix: bool
    split: Sequence[str]
    notices: list[str]

    def groups(self, runs: Sequence[RunRecord], beside: Sequence[str] = ()) -> list[Group]:
        """One group per method, or several if its runs may not be averaged. `beside` is said of each of them."""
        methods: dict[str, list[RunRecord]] = defaultdict(list)
        for run in runs:
            methods[run.method].append(run)
        return [
            group for method in sorted(methods, key=place) for group in self._method(method, methods[method], beside)
        ]

    def _method(self, method: str, runs: Sequence[RunRecord], beside: Sequence[str]) -> list[Group]:
        title = self.titles[method]
        keys = differences(runs)
        apart = [key for key in keys if not self.mix or key in self.split]
        apart += [key for key in self.split if key not in keys]
        rows = _rows(title, runs, apart, beside)
        labels = sorted(rows, key=natural)
        if len(rows) > 1:
            self.notices.append(
                f"{title}: {runs[0].kind} runs differ in {', '.join(apart)} and are not averaged; each kind has a row "
                f"of its own ({', '.join(labels)}). --mix averages them"
            )
        elif keys and self.mix:
            self.notices.append(f"{title}: runs that differ in {', '.join(keys)} are averaged, as --mix asks")
        return [Group(label, method, tuple(rows[label])) for label in labels]


def _rows(
    title: str, runs: Sequence[RunRecord], apart: Sequence[str], beside: Sequence[str]
) -> dict[str, list[RunRecord]]:
    """Label → its runs. The label names the fewest keys that tell the rows apart."""
    configs = [flatten(run.config) for run in runs]

    def kinds(keys: Sequence[str]) -> list[str]:
        return [json.dumps([config.get(key) for key in keys]) for config in configs]

    named: list[str] = []
    for key in apart:
        if len(set(kinds([*named, key]))) > len(set(kinds(named))):
            named.append(key)
    rows: dict[str, list[RunRecord]] = defaultdict(list)
    for run, config in zip(runs, configs, strict=True):
        rows[_label(title, {key: config.get(key) for key in named}, beside)].append(run)
    return rows


def settings(run: RunRecord) -> dict[str, Any]:
    """What may change a run's outcome, besides seed, task and budget: everything that is not known to be harmless."""
    return {key: value for key, value in flatten(run.config).items() if key not in _HARMLESS}


def differences(runs: Sequence[RunRecord]) -> list[str]:
    """Keys that keep runs of a method apart: budgets that differ at all, settings that differ within one task.

    A setting may depend on the domain without harm; a budget may not. A setting that only some configs have differs."""
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    configs = [settings(run) for run in runs]
    known = {key for config in configs for key in config}
    for run, config in zip(runs, configs, strict=True):
        for key in KEYS:
            values[key, ""].add(json.dumps(run.config.get(key)))
        for key in known:
            values[key, run.task or run.domain].add(json.dumps(config.get(key)))
    keys = {key for (key, _), found in values.items() if len(found) > 1}
    return sorted(keys, key=_importance)


def _importance(key: str) -> tuple[int, str]:
    """Budgets first, then what the method is told, then everything else."""
    if key in KEYS:
        return KEYS.index(key), key
    return len(KEYS) + (not key.startswith("options.")), key


def _label(title: str, values: dict[str, Any], beside: Sequence[str]) -> str:
    parts = list(beside)
    for key, value in values.items():
        if key == "scale":
            parts.append(f"{value} scale")
        elif key in KEYS:
            parts.append(f"{count(value or 0)} {'steps' if key == 'steps' else 'pre-trained'}")
        else:
            parts.append(f"{key.rpartition('.')[2]}={value}")
    return f"{title} ({', '.join(parts)})" if parts else title


def natural(text: str) -> list[tuple[int, float, str]]:
    """Sort key: "dim=8" before "dim=16", "50k" before "1M"."""
    keys: list[tuple[int, float, str]] = []
    for word in "".join(" " if letter in "=(),[]" else letter for letter in text).split():
        number, unit = (word[:-1], word[-1]) if word[-1] in "kM" else (word, "")
        try:
            keys.append((0, float(number) * {"k": 1e3, "M": 1e6}.get(unit, 1.0), ""))
        except ValueError:
            keys.append((1, 0.0, word))
    return keys
