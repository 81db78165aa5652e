"""Which runs are one row: runs that may be averaged, and no others.

Runs of one method belong together if they differ in seed, task or domain alone. Runs of different scales, budgets or
settings get rows of their own, with the reason said, unless `mix` asks for their average.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cic.report.style import Style, place, styles, title
from cic.runs.records import Run, flatten

BUDGETS = ("scale", "steps", "pretrain_steps")
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
_HARMLESS |= {"log_every", "checkpoint_every", "milestones", "eval_every", "eval_episodes", *BUDGETS}


@dataclass(frozen=True)
class Group:
    """Runs that are averaged: one row of every table, one colour of every figure."""

    label: str
    method: str
    runs: tuple[Run, ...]

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
    pretrain: list[Group] = field(default_factory=list)
    styles: dict[str, Style] = field(default_factory=dict)

    @property
    def groups(self) -> list[Group]:
        return [*self.finetune, *self.pretrain]


def study(runs: Sequence[Run], mix: bool, split: Sequence[str], notices: list[str]) -> Study:
    """Group the runs, and say which of a method's runs were kept apart and why."""
    finetune, pretrain = ([run for run in runs if run.kind == kind] for kind in ("finetune", "pretrain"))
    result = Study(_groups(finetune, mix, split, notices), _groups(pretrain, mix, split, notices))
    labels = {group.label: group.method for group in result.groups}
    result.styles = styles(sorted(labels.items(), key=lambda item: (place(item[1]), natural(item[0]))))
    return result


def _groups(runs: Sequence[Run], mix: bool, split: Sequence[str], notices: list[str]) -> list[Group]:
    methods: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        methods[run.method].append(run)
    groups = []
    for method in sorted(methods, key=place):
        keys = differences(methods[method])
        apart = [key for key in keys if not mix or key in split] + [key for key in split if key not in keys]
        rows = _rows(method, methods[method], apart)
        if len(rows) > 1:
            names = ", ".join(sorted(rows, key=natural))
            notices.append(
                f"{title(method)}: {runs[0].kind} runs differ in {', '.join(apart)} and are not averaged; each kind "
                f"has a row of its own ({names}). --mix averages them"
            )
        elif keys and mix:
            notices.append(f"{title(method)}: runs that differ in {', '.join(keys)} are averaged, as --mix asks")
        groups += [Group(label, method, tuple(rows[label])) for label in sorted(rows, key=natural)]
    return groups


def _rows(method: str, runs: Sequence[Run], apart: Sequence[str]) -> dict[str, list[Run]]:
    """Label → its runs. The label names the fewest keys that tell the rows apart."""
    configs = [flatten(run.config) for run in runs]

    def kinds(keys: Sequence[str]) -> list[str]:
        return [json.dumps([config.get(key) for key in keys]) for config in configs]

    named: list[str] = []
    for key in apart:
        if len(set(kinds([*named, key]))) > len(set(kinds(named))):
            named.append(key)
    rows: dict[str, list[Run]] = defaultdict(list)
    for run, config in zip(runs, configs, strict=True):
        rows[_label(method, {key: config.get(key) for key in named})].append(run)
    return rows


def settings(run: Run) -> dict[str, Any]:
    """What may change a run's outcome, besides seed, task and budget: everything that is not known to be harmless."""
    return {key: value for key, value in flatten(run.config).items() if key not in _HARMLESS}


def differences(runs: Sequence[Run]) -> list[str]:
    """Keys that keep runs of a method apart: budgets that differ at all, settings that differ within one task.

    A setting may depend on the domain without harm; a budget may not. A setting that only some configs have differs."""
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    configs = [settings(run) for run in runs]
    known = {key for config in configs for key in config}
    for run, config in zip(runs, configs, strict=True):
        for key in BUDGETS:
            values[key, ""].add(json.dumps(run.config.get(key)))
        for key in known:
            values[key, run.task or run.domain].add(json.dumps(config.get(key)))
    keys = {key for (key, _), found in values.items() if len(found) > 1}
    return sorted(keys, key=_importance)


def _importance(key: str) -> tuple[int, str]:
    """Budgets first, then what the method is told, then everything else."""
    if key in BUDGETS:
        return BUDGETS.index(key), key
    return len(BUDGETS) + (not key.startswith("options.")), key


def _label(method: str, values: dict[str, Any]) -> str:
    words = []
    for key, value in values.items():
        if key == "scale":
            words.append(f"{value} scale")
        elif key in BUDGETS:
            words.append(f"{count(value or 0)} {'steps' if key == 'steps' else 'pre-trained'}")
        else:
            words.append(f"{key.rpartition('.')[2]}={value}")
    return f"{title(method)} ({', '.join(words)})" if words else title(method)


def count(number: float) -> str:
    """100000 → "100k"."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{letter}"
    return f"{number:.4g}"


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
