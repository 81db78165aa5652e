"""Grouping of runs: which runs are averaged into one row.

Runs of one method form a group if they differ only in seed, task or domain. Runs with different scales, budgets or
settings get separate rows, unless `mix` averages them. The budget with the most scores is the subject of the report;
runs with other budgets get their own section, unless `together` puts all of them into one table.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cic.core.paper_scores import TITLES
from cic.report.collapse import marked, soundness, unsound_notices
from cic.report.figures.style import Style, place, styles
from cic.report.tables import count
from cic.runs.records import RunRecord, flatten

BUDGET_KEYS = ("scale", "steps", "pretrain_steps")
_HARMLESS = {"objective", "task", "domain", "seed", "pretrained", "pretrain_seed", "preset", "device", "threads"}
_HARMLESS |= {"compile", "wandb", "log_every", "checkpoint_every", "milestones", "eval_every", "eval_episodes"}
_HARMLESS |= {*BUDGET_KEYS, "pretrain_problems"}
"""Config keys that do not change the outcome of a run, or that are compared separately."""


class Budget(NamedTuple):
    scale: str
    steps: int
    pretrain_steps: int
    """0 for a run from scratch."""

    def describe(self, reference: Budget | None = None) -> list[str]:
        """Describe the budget, or how it differs from `reference`."""
        parts = {"scale": f"{self.scale or 'no'} scale", "steps": f"{count(self.steps)} steps"}
        if self.pretrain_steps:
            parts["pretrain_steps"] = f"{count(self.pretrain_steps)} pre-trained"
        return [text for key, text in parts.items() if not reference or getattr(self, key) != getattr(reference, key)]


@dataclass(frozen=True)
class RunGroup:
    """Runs that are averaged: one row of every table, one colour of every figure."""

    label: str
    method: str
    runs: tuple[RunRecord, ...]

    def scores(self) -> dict[str, list[float]]:
        """Return task → returns of its finished runs, by seed; NaN and infinite returns are excluded."""
        found: dict[str, list[float]] = {}
        for run in sorted(self.runs, key=lambda run: run.seed):
            if math.isfinite(run.score):
                found.setdefault(run.task, []).append(run.score)
        return found


@dataclass
class Study:
    """All runs of a report, grouped."""

    finetune: list[RunGroup] = field(default_factory=list)
    """The rows of the statistics."""
    others: dict[Budget, list[RunGroup]] = field(default_factory=dict)
    """Finetuning runs with other budgets."""
    pretrain: list[RunGroup] = field(default_factory=list)
    styles: dict[str, Style] = field(default_factory=dict)
    budget: Budget | None = None
    """The budget of `finetune`, if all its runs have the same."""

    @property
    def tuned(self) -> list[RunGroup]:
        """Finetuning runs with any budget."""
        return [*self.finetune, *(group for groups in self.others.values() for group in groups)]

    @property
    def groups(self) -> list[RunGroup]:
        return [*self.tuned, *self.pretrain]


def study(
    runs: Sequence[RunRecord], mix: bool, split: Sequence[str], notices: list[str], together: bool = False
) -> Study:
    """Group the runs; `notices` states which runs of a method are kept apart and why."""
    sound = soundness(runs)
    notices.extend(unsound_notices(runs, sound))
    grouper = _Grouper(_titles(runs), mix, split, notices, sound)
    finetune, pretrain = ([run for run in runs if run.kind == kind] for kind in ("finetune", "pretrain"))
    parts = _by_budget(finetune)
    result = Study(budget=next(iter(parts)) if len(parts) == 1 else None)
    if mix or together or len(parts) < 2:
        result.finetune = grouper.groups(finetune)
    else:
        result.budget, *others = parts
        result.finetune = grouper.groups(parts[result.budget])
        result.others = {other: grouper.groups(parts[other], other.describe(result.budget)) for other in others}
        labels = ", ".join(group.label for groups in result.others.values() for group in groups)
        number = sum(len(parts[other]) for other in others)
        notices.append(
            f"{number} finetuning run(s) have a different budget than {', '.join(result.budget.describe())} and are in "
            f"a separate section: {labels}. `budgets=together` puts them into the same table"
        )
    result.pretrain = grouper.groups(pretrain)
    named = {group.label: group.method for group in result.groups}
    result.styles = styles(sorted(named.items(), key=lambda item: (place(item[1]), natural(item[0]))))
    return result


def _by_budget(runs: Sequence[RunRecord]) -> dict[Budget, list[RunRecord]]:
    """Divide runs by budget, the budget with the most scores first.

    A run from scratch is the baseline of the pre-trained runs with its scale and steps, so it joins them.
    """
    usual: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
    for run in runs:
        usual[run.scale, run.steps][run.pretrain_steps] += bool(run.pretrain_steps)
    parts: dict[Budget, list[RunRecord]] = {}
    for run in runs:
        counts = usual[run.scale, run.steps]
        pretrain_steps = run.pretrain_steps or max(counts, key=lambda steps: (counts[steps], steps))
        parts.setdefault(Budget(run.scale, run.steps, pretrain_steps), []).append(run)

    def weight(budget: Budget) -> tuple[int, int, int, int, str]:
        scored = sum(math.isfinite(run.score) for run in parts[budget])
        return scored, len(parts[budget]), budget.steps, budget.pretrain_steps, budget.scale

    return {budget: parts[budget] for budget in sorted(parts, key=weight, reverse=True)}


def _titles(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Return method → title as recorded in its runs; the method's name is added where two methods share a title."""
    recorded: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        recorded[run.method].add(run.title)
    titles = {m: found.pop() if len(found) == 1 else TITLES.get(m, m) for m, found in recorded.items()}
    shared = Counter(titles.values())
    return {method: title if shared[title] == 1 else f"{title} [{method}]" for method, title in titles.items()}


@dataclass(frozen=True)
class _Grouper:
    titles: dict[str, str]
    mix: bool
    split: Sequence[str]
    notices: list[str]
    sound: Mapping[str, bool | None]

    def groups(self, runs: Sequence[RunRecord], suffix: Sequence[str] = ()) -> list[RunGroup]:
        """Return one group per method, or several if its runs must not be averaged; labels contain `suffix`."""
        methods: dict[str, list[RunRecord]] = defaultdict(list)
        for run in runs:
            methods[run.method].append(run)
        return [
            group for method in sorted(methods, key=place) for group in self._method(method, methods[method], suffix)
        ]

    def _method(self, method: str, runs: Sequence[RunRecord], suffix: Sequence[str]) -> list[RunGroup]:
        title = self.titles[method]
        keys = differences(runs)
        apart = [key for key in keys if not self.mix or key in self.split]
        apart += [key for key in self.split if key not in keys]
        rows = _rows(title, runs, apart, suffix)
        labels = sorted(rows, key=natural)
        if len(rows) > 1:
            self.notices.append(
                f"{title}: {runs[0].kind} runs differ in {', '.join(apart)} and are not averaged; each setting has its "
                f"own row ({', '.join(labels)}). `mix` averages them"
            )
        elif keys and self.mix:
            self.notices.append(f"{title}: runs that differ in {', '.join(keys)} are averaged because of `mix`")
        names = {label: [run.name for run in rows[label]] for label in labels}
        return [RunGroup(marked(label, names[label], self.sound), method, tuple(rows[label])) for label in labels]


def _rows(
    title: str, runs: Sequence[RunRecord], apart: Sequence[str], suffix: Sequence[str]
) -> dict[str, list[RunRecord]]:
    """Return label → runs. A label contains the fewest keys that distinguish the rows."""
    configs = [flatten(run.config) for run in runs]

    def distinct(keys: Sequence[str]) -> int:
        return len({json.dumps([config.get(key) for key in keys]) for config in configs})

    named: list[str] = []
    for key in apart:
        if distinct([*named, key]) > distinct(named):
            named.append(key)
    rows: dict[str, list[RunRecord]] = defaultdict(list)
    for run, config in zip(runs, configs, strict=True):
        rows[_label(title, {key: config.get(key) for key in named}, suffix)].append(run)
    return rows


def settings(run: RunRecord) -> dict[str, Any]:
    """Return the config values that may change the outcome, without seed, task and budget."""
    return {key: value for key, value in flatten(run.config).items() if key not in _HARMLESS}


def differences(runs: Sequence[RunRecord]) -> list[str]:
    """Return the keys that keep runs of a method apart: budgets, and settings that differ within one task.

    A setting may depend on the domain; a budget must not. A setting that only some configs contain differs.
    """
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    configs = [settings(run) for run in runs]
    known = {key for config in configs for key in config}
    for run, config in zip(runs, configs, strict=True):
        for key in BUDGET_KEYS:
            values[key, ""].add(json.dumps(run.config.get(key)))
        for key in known:
            values[key, run.task or run.domain].add(json.dumps(config.get(key)))
    return sorted({key for (key, _), found in values.items() if len(found) > 1}, key=_importance)


def _importance(key: str) -> tuple[int, str]:
    """Sort key: budgets, then options of the method, then all other settings."""
    if key in BUDGET_KEYS:
        return BUDGET_KEYS.index(key), key
    return len(BUDGET_KEYS) + (not key.startswith("options.")), key


def _label(title: str, values: dict[str, Any], suffix: Sequence[str]) -> str:
    parts = list(suffix)
    for key, value in values.items():
        if key == "scale":
            parts.append(f"{value} scale")
        elif key in BUDGET_KEYS:
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
