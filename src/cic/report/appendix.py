"""The page's appendix: the facts at its head, pictures and films, every run, its config and how configs differ."""

from __future__ import annotations

import html
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from textwrap import shorten

from cic.core.files import read_regular
from cic.report.budgets import count
from cic.report.groups import Group, Study
from cic.report.page import data_uri
from cic.report.scores import Scores
from cic.report.tables import Table, number, rows
from cic.runs.contents import PICTURES, pictures
from cic.runs.records import RunRecord, flatten

_OWN = {"seed", "task", "domain", "objective", "pretrained", "pretrain_seed"}  # differ by design


def facts(runs: Sequence[RunRecord], study: Study, scores: Scores) -> dict[str, str]:
    states = Counter(run.state for run in runs)
    found = {"Runs": str(len(runs))}
    found |= {state.capitalize(): str(states[state]) for state in sorted(states)}
    found["Methods"] = str(len({group.method for group in study.groups}))
    if scores.tasks:
        found["Tasks in the statistics"] = str(len(scores.tasks))
    scales = sorted({run.scale for run in runs if run.scale})
    if scales:
        found["Scale"] = ", ".join(scales)
    return found


def gallery(study: Study, megabytes: float, notices: list[str]) -> str:
    """Pictures and films, every group's first run before any second one, as long as they fit."""
    queues = [[(group, run, path) for run in group.runs for path in pictures(run)] for group in study.groups]
    waiting = [item for turn in zip_longest(*queues) for item in turn if item is not None]
    items, room = [], megabytes * 1e6
    for group, run, path in waiting:
        try:
            if path.stat().st_size > room:
                continue
            data = read_regular(path, int(room))
            items.append(_medium(group, run, path, data_uri(PICTURES[path.suffix], data)))
            room -= len(data)
        except OSError as error:
            notices.append(f"{run.name}: {path.name} cannot be read ({error.strerror})")
    if len(items) < len(waiting):
        notices.append(
            f"{len(waiting) - len(items)} of {len(waiting)} pictures and films do not fit in the page (see --media)"
        )
    body = "".join(items)
    return f'<div class="media">{body}</div>' if items else ""


_SHOWS = {
    "skills.png": "what each skill does, a line per skill",
    "starts.png": "the same skill from several starts",
    "filmstrip.png": "filmstrips, a row per skill",
    "best.png": "filmstrips of the best skill of each task",
    "skills": "film of the skills side by side",
    "best": "film of the best skill of each task",
    "film": "film of one episode with its running return",
}
"""What the files that `cic skills` and `cic film` leave show; others are called by their names."""


def _medium(group: Group, run: RunRecord, path: Path, uri: str) -> str:
    shows = _SHOWS.get(path.name) or _SHOWS.get(path.stem, path.stem)
    what = html.escape(f"{group.label}, {run.task or run.domain}, seed {run.seed}: {shows}")
    if path.suffix == ".mp4":
        body = f'<video controls="controls" preload="metadata" src="{uri}" aria-label="{what}"></video>'
    else:
        body = f'<img src="{uri}" alt="{what}">'
    wide = ' class="wide"' if path.name in ("filmstrip.png", "best.png") else ""
    return f"<figure{wide}>{body}<figcaption>{what}</figcaption></figure>"


def runs_table(study: Study) -> Table:
    lines, records = [], []
    for group in study.groups:
        for run in group.runs:
            where = run.task or run.domain
            state = f"{run.state}: {shorten(run.message, 80)}" if run.message else run.state
            score = number(run.score, 1) if run.kind == "finetune" else "–"
            progress = f"{count(run.step)} of {count(run.steps)}"
            lines.append([run.name, run.kind, group.label, where, str(run.seed), state, progress, score])
            records.append(
                {"run": run.name, "kind": run.kind, "method": group.label, "task": where, "seed": run.seed}
                | {"scale": run.scale, "state": run.state, "step": run.step, "steps": run.steps, "return": run.score}
            )
    header = ("Run", "Kind", "Method", "Task", "Seed", "State", "Steps", "Return")
    return Table(
        "runs", "Runs", "Every run that this report has read.", header, rows(lines), words=True, records=records
    )


def differences_table(study: Study) -> Table:
    """Each config key that is not the same everywhere: its values, and which rows have them."""
    values: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    total = 0
    for group in study.groups:
        for run in group.runs:
            total += 1
            for key, value in flatten(run.config).items():
                if key not in _OWN:
                    values[f"{run.kind}: {key}"][json.dumps(value)][group.label] += 1
    lines, records = [], []
    for key, found in sorted(values.items()):
        if len(found) < 2:
            continue
        for index, (value, labels) in enumerate(sorted(found.items())):
            who = ", ".join(f"{label} ({runs})" for label, runs in labels.items())
            lines.append([key if index == 0 else "", value, who])
            records += [{"key": key, "value": value, "method": label, "runs": runs} for label, runs in labels.items()]
    caption = "Config keys with more than one value, and how many runs of each method have it."
    header = ("Key", "Value", "Methods (runs)")
    return Table("config_differences", "Differences between configs", caption, header, rows(lines), 2, True, records)


def run_details(runs: Sequence[RunRecord]) -> str:
    items = "".join(
        f"<details><summary>{html.escape(run.name)}</summary>"
        f"<pre>{html.escape(json.dumps(_made(run) | run.config, indent=1, ensure_ascii=False))}</pre></details>"
        for run in runs
    )
    return f"<details><summary>Config of each of the {len(runs)} runs</summary>{items}</details>" if runs else ""


def _made(run: RunRecord) -> dict[str, object]:
    """How the run was made, where it says so."""
    said = {"command": run.command, "versions": run.versions or ({"cic": run.version} if run.version else {})}
    return {key: value for key, value in said.items() if value}
