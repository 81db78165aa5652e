"""The sections of a report: which figures and tables each is made of."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from cic.report import (
    budgets,
    curve_plots,
    figures,
    groups,
    learning_curves,
    paper,
    plots,
    score_tables,
    scores,
    tables,
)
from cic.report.appendix import differences_table, gallery, run_details, runs_table
from cic.report.figures import Plot
from cic.report.options import ReportOptions
from cic.report.page import figure_html
from cic.report.tables import Table
from cic.runs.contents import selection

HEADINGS = {
    "aggregate": "Aggregate statistics",
    "scores": "Raw scores",
    "curves": "Learning curves",
    "profile": "Performance profile",
    "improvement": "Probability of improvement",
    "pretraining": "Pre-training",
    "selection": "Skill selection",
    "others": "Other budgets",
    "media": "Pictures and films",
    "runs": "Runs",
}


@dataclass
class Builder:
    """What the sections share, and what they leave behind."""

    out: Path
    options: ReportOptions
    study: groups.Study
    scores: scores.Scores
    loaded: learning_curves.Metrics
    notices: list[str]
    sections: dict[str, list[str]] = field(default_factory=dict)
    figures: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)

    def plot(self, section: str, plot: Plot | None) -> None:
        if plot is not None:
            self.figures += figures.save(plot, self.out / "figures", self.options.figures)
            self.html(section, figure_html(plot, figures.svgs(plot), list(self.study.styles), HEADINGS[section]))

    def table(self, section: str, table: Table) -> None:
        if table.rows:
            self.tables += tables.write(table, self.out / "tables")
            self.html(section, tables.to_html(table))

    def html(self, section: str, text: str) -> None:
        if text:
            self.sections.setdefault(section, []).append(text)


def _aggregate(builder: Builder) -> None:
    if builder.scores.rows:
        builder.plot("aggregate", plots.aggregate(builder.scores, builder.options))
        builder.table("aggregate", score_tables.aggregate_table(builder.scores, builder.options))


def _scores(builder: Builder) -> None:
    builder.table("scores", score_tables.raw_table(builder.study, builder.options))
    if paper.select(builder.options.paper)[1]:
        builder.table("scores", score_tables.variants_table(builder.study))


def _curves(builder: Builder) -> None:
    builder.plot(
        "curves", curve_plots.sample_efficiency(builder.study, builder.loaded, builder.scores, builder.options)
    )
    builder.plot("curves", curve_plots.finetuning(builder.study, builder.loaded))


def _profile(builder: Builder) -> None:
    if builder.scores.own:
        builder.plot("profile", plots.performance_profile(builder.scores, builder.options))


def _improvement(builder: Builder) -> None:
    if len(builder.scores.own) > 1:
        reference, found = scores.improvements(builder.scores, builder.options, builder.notices)
        if found:
            builder.plot("improvement", plots.improvement(reference, found))
            builder.table("improvement", score_tables.improvement_table(reference, found))


def _pretraining(builder: Builder) -> None:
    builder.plot("pretraining", curve_plots.zero_shot(builder.study, builder.loaded))
    builder.plot("pretraining", curve_plots.diagnostics(builder.study, builder.loaded))


def _selection(builder: Builder) -> None:
    found = []
    for group in builder.study.tuned:
        for run in group.runs:
            tried, problem = selection(run)
            builder.notices += [problem] if problem else []
            if tried is not None:
                found.append((group, run.task, tried))
    builder.plot("selection", plots.selection(builder.study, found))


def _others(builder: Builder) -> None:
    """The tables once more for each other budget; its rows stand beside nothing that had more or less to spend."""
    for index, (budget, rows) in enumerate(builder.study.others.items(), 1):
        part = groups.Study(rows, styles=builder.study.styles, budget=budget)
        options = replace(builder.options, paper=())
        computed = scores.compute(part, options, [])
        heading = ", ".join(budgets.words(budget))
        builder.html("others", f"<h3>{html.escape(heading[:1].upper() + heading[1:])}</h3>")
        if computed.rows:
            builder.table("others", _renamed(score_tables.aggregate_table(computed, options), index, heading))
        builder.table("others", _renamed(score_tables.raw_table(part, options), index, heading))


def _renamed(table: Table, index: int, heading: str) -> Table:
    name, title = f"{table.name}_budget_{index}", f"{table.title}, {heading}"
    return replace(table, name=name, title=title, caption=f"{table.caption} Budget: {heading}.")


def _media(builder: Builder) -> None:
    builder.html("media", gallery(builder.study, builder.options.media, builder.notices))


def _runs(builder: Builder) -> None:
    runs = [run for group in builder.study.groups for run in group.runs]
    builder.table("runs", runs_table(builder.study))
    builder.table("runs", differences_table(builder.study))
    builder.html("runs", run_details(runs))


SECTIONS: dict[str, Callable[[Builder], None]] = {
    "aggregate": _aggregate,
    "scores": _scores,
    "curves": _curves,
    "profile": _profile,
    "improvement": _improvement,
    "pretraining": _pretraining,
    "selection": _selection,
    "others": _others,
    "media": _media,
    "runs": _runs,
}
