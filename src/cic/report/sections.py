"""The sections of a report and the figures, tables and media in each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from cic.report import figures, learning_curves, score_tables, scores, tables
from cic.report.figures import Plot, curve_plots, score_plots
from cic.report.groups import RunGroup, Study
from cic.report.learning_curves import Metrics
from cic.report.options import ReportOptions
from cic.report.page import Medium, data_uri, figure_html, render, table_html
from cic.report.scores import Scores
from cic.report.tables import Table, count, number
from cic.runs.contents import PICTURES, pictures, selection
from cic.runs.records import RunRecord, flatten
from cic.runs.untrusted import read_regular

if TYPE_CHECKING:
    from markupsafe import Markup

_DIFFER_BY_DESIGN = {"seed", "task", "domain", "objective", "pretrained", "pretrain_seed", "pretrain_problems"}
_MEDIA_BYTES = 20_000_000
"""Maximum size of the pictures and films in the page."""
_CAPTIONS = {
    "skills.png": "trajectory of each skill",
    "filmstrip.png": "filmstrips, one row per skill",
    "skills": "film of the skills side by side",
    "film": "film of one episode with its running return",
}
"""Captions of the files that `cic skills` and `cic film` write; other files are captioned by their names."""


@dataclass
class Builder:
    """The inputs of all sections, and the parts and files that they have produced."""

    out: Path
    options: ReportOptions
    study: Study
    scores: Scores
    loaded: Metrics
    notices: list[str]
    missing: list[dict[str, Any]]
    """Planned runs of sweeps that have no run folder."""
    parts: dict[str, list[Markup]] = field(default_factory=dict)
    figures: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)

    def plot(self, section: str, plot: Plot | None) -> None:
        if plot is not None:
            self.figures += figures.save(plot, self.out / "figures", self.options.figures)
            self.html(section, figure_html(plot, list(self.study.styles), SECTIONS[section][0]))

    def table(self, section: str, table: Table) -> None:
        if table.rows:
            self.tables += tables.write(table, self.out / "tables")
            self.html(section, table_html(table))

    def html(self, section: str, part: Markup) -> None:
        self.parts.setdefault(section, []).append(part)


def facts(runs: Sequence[RunRecord], study: Study, scores: Scores) -> dict[str, str]:
    """Return the numbers at the top of the page."""
    states = Counter(run.state for run in runs)
    found = {"Runs": str(len(runs))}
    found |= {state.capitalize(): str(states[state]) for state in sorted(states)}
    found["Methods"] = str(len({group.method for group in study.groups}))
    if scores.tasks:
        found["Tasks in the statistics"] = str(len(scores.tasks))
    scales = sorted({run.scale for run in runs if run.scale})
    return found | ({"Scale": ", ".join(scales)} if scales else {})


# ---- results ---------------------------------------------------------------------------------------------------------


def _aggregate(builder: Builder) -> None:
    if builder.scores.rows:
        builder.plot("aggregate", score_plots.aggregate(builder.scores, builder.options))
        builder.table("aggregate", score_tables.aggregate_table(builder.scores, builder.options))


def _scores(builder: Builder) -> None:
    builder.table("scores", score_tables.raw_table(builder.study, builder.options))
    if scores.paper_rows(builder.options.paper)[1]:
        builder.table("scores", score_tables.variants_table(builder.study))


def _curves(builder: Builder) -> None:
    plot = curve_plots.sample_efficiency(builder.study, builder.loaded, builder.scores, builder.options)
    builder.plot("curves", plot)
    builder.plot("curves", curve_plots.finetuning(builder.study, builder.loaded))
    builder.tables.append(learning_curves.write_csv(builder.study, builder.loaded, builder.out / "tables"))


def _profile(builder: Builder) -> None:
    if builder.scores.own:
        builder.plot("profile", score_plots.performance_profile(builder.scores, builder.options))


def _improvement(builder: Builder) -> None:
    if len(builder.scores.own) > 1:
        reference, found = scores.improvements(builder.scores, builder.options, builder.notices)
        if found:
            builder.plot("improvement", score_plots.improvement(reference, found))
            builder.table("improvement", score_tables.improvement_table(reference, found))


def _pretraining(builder: Builder) -> None:
    builder.plot("pretraining", curve_plots.zero_shot(builder.study, builder.loaded))
    builder.plot("pretraining", curve_plots.diagnostics(builder.study, builder.loaded))


def _selection(builder: Builder) -> None:
    found = []
    for group in builder.study.finetune:
        for run in group.runs:
            trials, problem = selection(run)
            builder.notices += [problem] if problem else []
            if trials is not None:
                found.append((group, run.task, trials))
    builder.plot("selection", score_plots.selection(builder.study, found))


# ---- appendix --------------------------------------------------------------------------------------------------------


def _media(builder: Builder) -> None:
    """Embed pictures and films up to the size limit, starting with the first run of every group."""
    queues = [[(group, run, path) for run in group.runs for path in pictures(run)] for group in builder.study.groups]
    waiting = [item for turn in zip_longest(*queues) for item in turn if item is not None]
    items, room = [], _MEDIA_BYTES
    for group, run, path in waiting:
        try:
            if path.stat().st_size > room:
                continue
            data = read_regular(path, room)
        except OSError as error:
            builder.notices.append(f"{run.name}: {path.name} cannot be read ({error.strerror})")
            continue
        items.append(_medium(group, run, path, data))
        room -= len(data)
    if len(items) < len(waiting):
        builder.notices.append(
            f"{len(waiting) - len(items)} of {len(waiting)} pictures and films do not fit in the page"
        )
    if items:
        builder.html("media", render("media.html", items=items, loop_films=False))


def _medium(group: RunGroup, run: RunRecord, path: Path, data: bytes) -> Medium:
    content = _CAPTIONS.get(path.name) or _CAPTIONS.get(path.stem, path.stem)
    caption = f"{group.label}, {run.task or run.domain}, seed {run.seed}: {content}"
    return Medium(caption, data_uri(PICTURES[path.suffix], data), path.name == "filmstrip.png")


def _runs(builder: Builder) -> None:
    builder.table("runs", _runs_table(builder))
    builder.table("runs", _differences_table(builder.study))
    configs = [
        (run.name, json.dumps(_provenance(run) | run.config, indent=1, ensure_ascii=False))
        for group in builder.study.groups
        for run in group.runs
    ]
    if configs:
        builder.html("runs", render("run_configs.html", configs=configs))


def _runs_table(builder: Builder) -> Table:
    """List the runs, and the planned runs of a sweep that failed early or were not started."""
    lines, records = [], []
    for group in builder.study.groups:
        for run in group.runs:
            task = run.task or run.domain
            state = f"{run.state}: {shorten(run.message, 80)}" if run.message else run.state
            score = number(run.score, 1) if run.scored else "–"
            progress = f"{count(run.step)} of {count(run.steps)}"
            lines.append([run.name, run.kind, group.label, task, str(run.seed), state, progress, score])
            records.append(
                {"run": run.name, "kind": run.kind, "method": group.label, "task": task, "seed": run.seed}
                | {"scale": run.scale, "state": run.state, "step": run.step, "steps": run.steps, "return": run.score}
            )
    for planned in builder.missing:
        run, kind, method, task, seed, state, message = planned.values()
        lines.append([run, kind, method, task, str(seed), shorten(f"{state}: {message}".rstrip(": "), 80), "–", "–"])
        fields = dict.fromkeys(["scale", "step", "steps", "return"], "")
        records.append({key: value for key, value in planned.items() if key != "message"} | fields)
    header = ("Run", "Kind", "Method", "Task", "Seed", "State", "Steps", "Return")
    return Table("runs", "Runs", "All runs of this report.", header, lines, words=True, records=records)


def _differences_table(study: Study) -> Table:
    """List each config key that has several values, with the groups that use each value."""
    from pandas import DataFrame

    values = DataFrame(
        [
            (f"{run.kind}: {key}", json.dumps(value), group.label)
            for group in study.groups
            for run in group.runs
            for key, value in flatten(run.config).items()
            if key not in _DIFFER_BY_DESIGN
        ],
        columns=["key", "value", "method"],
    )
    several = values[values.groupby("key").value.transform("nunique") > 1]
    counts = several.groupby(["key", "value", "method"], sort=False).size().reset_index(name="runs")
    counts, lines, above = counts.sort_values(["key", "value"], kind="stable"), [], ""
    for (key, value), part in counts.groupby(["key", "value"]):
        methods = ", ".join(f"{row.method} ({row.runs})" for row in part.itertuples())
        lines.append([key if key != above else "", value, methods])
        above = key
    caption = "Config keys with more than one value, and the number of runs of each method with that value."
    header, records = ("Key", "Value", "Methods (runs)"), counts.to_dict("records")
    return Table("config_differences", "Differences between configs", caption, header, lines, 2, True, records)


def _provenance(run: RunRecord) -> dict[str, Any]:
    """Return the command and the package versions, if the run recorded them."""
    versions = run.versions or ({"cic": run.version} if run.version else {})
    return {key: value for key, value in (("command", run.command), ("versions", versions)) if value}


SECTIONS: dict[str, tuple[str, Callable[[Builder], None]]] = {
    "aggregate": ("Aggregate statistics", _aggregate),
    "scores": ("Raw scores", _scores),
    "curves": ("Learning curves", _curves),
    "profile": ("Performance profile", _profile),
    "improvement": ("Probability of improvement", _improvement),
    "pretraining": ("Pre-training", _pretraining),
    "selection": ("Skill selection", _selection),
    "media": ("Pictures and films", _media),
    "runs": ("Runs", _runs),
}
"""The heading of each section and the function that adds its parts, in the order of the page."""
