"""Grouping of runs: which runs are averaged into one row.

Runs of one method form a group if they differ only in seed, task or domain. Runs with different scales, budgets or
settings get separate rows, unless `mix` averages them. The aggregate statistics cover the budget with the most scores.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cic.core.paper_scores import TITLES
from cic.report.collapse import marked, soundness, unsound_notices
from cic.report.figures.style import Style, place, styles
from cic.report.tables import count
from cic.runs.records import RunRecord, flatten

if TYPE_CHECKING:
    from pandas import DataFrame

BUDGET_KEYS = ("scale", "steps", "pretrain_steps")
_HARMLESS = {"objective", "task", "domain", "seed", "pretrained", "pretrain_seed", "preset", "device", "threads"}
_HARMLESS |= {"compile", "wandb", "log_every", "checkpoint_every", "milestones", "eval_every", "eval_episodes"}
_HARMLESS |= {"pretrain_problems"}
"""Config keys that do not change the outcome of a run, or that are compared separately."""


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


@dataclass(frozen=True)
class Study:
    """All runs of a report, grouped."""

    finetune: list[RunGroup]
    pretrain: list[RunGroup]
    styles: dict[str, Style]
    main: list[RunGroup]
    """The rows of the aggregate statistics: finetunings with the budget that has the most scores."""

    @property
    def groups(self) -> list[RunGroup]:
        return [*self.finetune, *self.pretrain]


def study(runs: Sequence[RunRecord], notices: list[str], mix: bool = False) -> Study:
    """Group the runs; `notices` states which runs of a method are kept apart and why."""
    titles, sound = _titles(runs), soundness(runs)
    notices.extend(unsound_notices(runs, sound))
    finetune, pretrain = (
        [
            replace(group, label=marked(group.label, [run.name for run in group.runs], sound))
            for method in sorted({run.method for run in runs if run.scored == scored}, key=place)
            for group in _groups(
                titles[method], [run for run in runs if (run.scored, run.method) == (scored, method)], mix, notices
            )
        ]
        for scored in (True, False)
    )
    named = {group.label: group.method for group in (*finetune, *pretrain)}
    ordered = sorted(named.items(), key=lambda item: (place(item[1]), natural(item[0])))
    main = finetune if mix else _main(finetune)
    if others := [group.label for group in finetune if group not in main]:
        notices.append(
            f"{', '.join(others)}: another scale or number of steps than most runs, so excluded from the aggregate "
            "statistics"
        )
    return Study(finetune, pretrain, styles(ordered), main)


def _main(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Return the groups with the budget that has the most scores. Runs from scratch have no pre-training budget."""
    runs = [run for group in groups for run in group.runs]
    for keys in (("scale", "steps"), ("pretrain_steps",)):
        values = {run.path: tuple(getattr(run, key) for key in keys) for run in runs}
        counts = Counter(value for run in runs if any(value := values[run.path]) and math.isfinite(run.score))
        most = max(counts, key=lambda value: (counts[value], value), default=())
        runs = [run for run in runs if not counts or values[run.path] == most or not any(values[run.path])]
    kept = {run.path for run in runs}
    return [group for group in groups if all(run.path in kept for run in group.runs)]


def _titles(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Return method → title as recorded in its runs; the method's name is added where two methods share a title."""
    recorded: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        recorded[run.method].add(run.title)
    titles = {m: found.pop() if len(found) == 1 else TITLES.get(m, m) for m, found in recorded.items()}
    shared = Counter(titles.values())
    return {method: title if shared[title] == 1 else f"{title} [{method}]" for method, title in titles.items()}


def _groups(title: str, runs: Sequence[RunRecord], mix: bool, notices: list[str]) -> list[RunGroup]:
    """Return one group of a method's runs, or several if they must not be averaged."""
    keys = differences(runs)
    rows: dict[str, list[RunRecord]] = defaultdict(list)
    named = [] if mix else _fewest(_settings(runs), keys)
    for run in runs:
        config = flatten(run.config)
        rows[_label(title, {key: config.get(key) for key in named})].append(run)
    labels = sorted(rows, key=natural)
    if len(rows) > 1:
        notices.append(
            f"{title}: {runs[0].kind} runs differ in {', '.join(keys)} and are not averaged; each setting has its own "
            f"row ({', '.join(labels)}). `mix` averages them"
        )
    elif keys and mix:
        notices.append(f"{title}: runs that differ in {', '.join(keys)} are averaged because of `mix`")
    return [RunGroup(label, runs[0].method, tuple(rows[label])) for label in labels]


def _settings(runs: Sequence[RunRecord]) -> DataFrame:
    """Return one row per run and one column per config key that may change the outcome, as JSON."""
    from pandas import DataFrame

    rows = [{key: json.dumps(value) for key, value in settings(run).items()} for run in runs]
    return DataFrame(rows, columns=sorted({*BUDGET_KEYS, *(key for row in rows for key in row)})).fillna("null")


def settings(run: RunRecord) -> dict[str, Any]:
    """Return the config values that may change the outcome, without seed and task."""
    return {key: value for key, value in flatten(run.config).items() if key not in _HARMLESS}


def differences(runs: Sequence[RunRecord]) -> list[str]:
    """Return the keys that keep runs of a method apart: budgets, and settings that differ within one task.

    A setting may depend on the domain; a budget must not. A setting that only some configs contain differs.
    """
    table = _settings(runs)
    within = table.groupby([run.task or run.domain for run in runs]).nunique().max()
    overall = table.nunique()
    differ = [key for key in table if (overall if key in BUDGET_KEYS else within)[key] > 1]
    return sorted(differ, key=_importance)


def _importance(key: str) -> tuple[int, str]:
    """Sort key: budgets, then options of the method, then all other settings."""
    if key in BUDGET_KEYS:
        return BUDGET_KEYS.index(key), key
    return len(BUDGET_KEYS) + (not key.startswith("options.")), key


def _fewest(table: DataFrame, keys: Sequence[str]) -> list[str]:
    """Return the first keys that distinguish all rows which the keys together distinguish."""
    named: list[str] = []
    rows = 1
    for key in keys:
        distinct = len(table[[*named, key]].drop_duplicates())
        if distinct > rows:
            named, rows = [*named, key], distinct
    return named


def _label(title: str, values: dict[str, Any]) -> str:
    parts = []
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
