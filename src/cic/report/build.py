"""`cic report`: read run folders, compute, write the page, the figures and the tables.

Reads run folders and nothing else. One section that fails costs that section, not the report.
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from cic.core.errors import UserError
from cic.report import (
    budgets,
    curve_plots,
    curves,
    figures,
    findings,
    groups,
    leftovers,
    notices,
    paper,
    plots,
    score_tables,
    scores,
    tables,
)
from cic.report.details import differences_table, facts, gallery, run_details, runs_table
from cic.report.figures import Plot
from cic.report.options import ReportOptions, ReportResult
from cic.report.page import Section, figure_html, page
from cic.report.tables import Table
from cic.runs import records
from cic.runs.contents import selection
from cic.runs.records import RunRecord

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
class _Builder:
    """What the sections share, and what they leave behind."""

    out: Path
    options: ReportOptions
    study: groups.Study
    scores: scores.Scores
    loaded: curves.Metrics
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


def report(runs: Sequence[Path], out: Path, options: ReportOptions | None = None) -> ReportResult:
    """Make the report of all run folders at or below `runs` in the folder `out`."""
    options = options or ReportOptions()
    _require_extra()
    paper.select(options.paper)  # a wrong name is said before the work
    found, said = records.read([Path(path) for path in runs])
    if not found and not options.paper:
        raise UserError("; ".join(said) or "give at least one run folder")
    counted = notices.without_twins(found, said)
    study = groups.study(counted, options.mix, options.split, said, options.budgets == "together")
    notices.same_seeds(study.groups, said)
    notices.states(counted, said)
    notices.budgets(study.finetune, said)
    computed = scores.compute(study, options, said)
    builder = _Builder(Path(out), options, study, computed, curves.load(counted, said), said)
    try:
        builder.out.mkdir(parents=True, exist_ok=True)
        for name, build in _SECTIONS.items():
            _attempt(builder, name, build)
        return _write(builder, found, counted)
    except OSError as error:
        raise UserError(f"cannot write the report to {out}: {error.strerror or error}") from error


def _attempt(builder: _Builder, name: str, build: Callable[[_Builder], None]) -> None:
    try:
        build(builder)
    except UserError as error:
        builder.notices.append(f"{HEADINGS[name].lower()}: {error}")
    except OSError:
        raise  # a full disk is not one section's matter
    except Exception as error:  # whatever odd data does to one section, the others are still made
        builder.notices.append(f"{HEADINGS[name].lower()} could not be made ({type(error).__name__}: {error})")


def _write(builder: _Builder, found: Sequence[RunRecord], counted: Sequence[RunRecord]) -> ReportResult:
    sections = [
        Section(name, HEADINGS[name], "".join(builder.sections[name])) for name in HEADINGS if name in builder.sections
    ]
    running = sum(run.going_on for run in found)
    opening = _findings(builder)
    text = page(
        facts(found, builder.study, builder.scores),
        opening,
        builder.notices,
        sections,
        [figures.key(style) for style in builder.study.styles.values()],
        refresh=builder.options.interval if builder.options.watch and running else None,
    )
    leftovers.clear(builder.out, [*builder.figures, *builder.tables])
    path = builder.out / "report.html"
    draft = path.with_suffix(".html.part")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)  # a browser that reloads never sees half a page
    return ReportResult(
        path,
        tuple(builder.figures),
        tuple(builder.tables),
        tuple(opening),
        tuple(builder.notices),
        len(counted),
        running,
    )


def _findings(builder: _Builder) -> list[str]:
    try:
        return findings.findings(builder.study, builder.scores, builder.loaded, builder.options)
    except Exception as error:  # as for a section
        builder.notices.append(f"the findings could not be made ({type(error).__name__}: {error})")
        return []


def _require_extra() -> None:
    if find_spec("matplotlib") is None:
        raise UserError("the report needs matplotlib: pip install 'cic[report]'")


# ---- sections ------------------------------------------------------------------------------------------------------


def _aggregate(builder: _Builder) -> None:
    if builder.scores.rows:
        builder.plot("aggregate", plots.aggregate(builder.scores, builder.options))
        builder.table("aggregate", score_tables.aggregate_table(builder.scores, builder.options))


def _scores(builder: _Builder) -> None:
    builder.table("scores", score_tables.raw_table(builder.study, builder.options))
    if paper.select(builder.options.paper)[1]:
        builder.table("scores", score_tables.variants_table(builder.study))


def _curves(builder: _Builder) -> None:
    builder.plot(
        "curves", curve_plots.sample_efficiency(builder.study, builder.loaded, builder.scores, builder.options)
    )
    builder.plot("curves", curve_plots.finetuning(builder.study, builder.loaded))


def _profile(builder: _Builder) -> None:
    if builder.scores.own:
        builder.plot("profile", plots.performance_profile(builder.scores, builder.options))


def _improvement(builder: _Builder) -> None:
    if len(builder.scores.own) > 1:
        reference, found = scores.improvements(builder.scores, builder.options, builder.notices)
        if found:
            builder.plot("improvement", plots.improvement(reference, found))
            builder.table("improvement", score_tables.improvement_table(reference, found))


def _pretraining(builder: _Builder) -> None:
    builder.plot("pretraining", curve_plots.zero_shot(builder.study, builder.loaded))
    builder.plot("pretraining", curve_plots.diagnostics(builder.study, builder.loaded))


def _selection(builder: _Builder) -> None:
    found = []
    for group in builder.study.tuned:
        for run in group.runs:
            tried, problem = selection(run)
            builder.notices += [problem] if problem else []
            if tried is not None:
                found.append((group, run.task, tried))
    builder.plot("selection", plots.selection(builder.study, found))


def _others(builder: _Builder) -> None:
    """The tables once more for each other budget; its rows stand beside nothing that had more or less to spend."""
    for index, (budget, rows) in enumerate(builder.study.others.items(), 1):
        part = groups.Study(rows, styles=builder.study.styles, budget=budget)
        options = replace(builder.options, paper=())
        computed = scores.compute(part, options, [])
        heading = ", ".join(budgets.words(budget))
        builder.html("others", f"<h3>{html.escape(heading)}</h3>")
        if computed.rows:
            builder.table("others", _renamed(score_tables.aggregate_table(computed, options), index, heading))
        builder.table("others", _renamed(score_tables.raw_table(part, options), index, heading))


def _renamed(table: Table, index: int, heading: str) -> Table:
    name, title = f"{table.name}_budget_{index}", f"{table.title}, {heading}"
    return replace(table, name=name, title=title, caption=f"{table.caption} Budget: {heading}.")


def _media(builder: _Builder) -> None:
    builder.html("media", gallery(builder.study, builder.options.media, builder.notices))


def _runs(builder: _Builder) -> None:
    runs = [run for group in builder.study.groups for run in group.runs]
    builder.table("runs", runs_table(builder.study))
    builder.table("runs", differences_table(builder.study))
    builder.html("runs", run_details(runs))


_SECTIONS: dict[str, Callable[[_Builder], None]] = {
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
