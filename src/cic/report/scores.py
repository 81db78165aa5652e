"""Normalised scores of each method, the tasks that they cover, and their statistics.

Rows of the paper are marked as such. The paper gives means and standard errors instead of runs, so they have no
interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cic.core import paper_scores
from cic.core.errors import unknown
from cic.core.paper_scores import TITLES, experts
from cic.report import statistics
from cic.report.figures.style import COLOURS, Style, place, styles
from cic.report.groups import Study
from cic.report.options import ReportOptions
from cic.report.statistics import Estimate, Matrix, matrix, normalised
from cic.report.tables import many

FEW_RUNS = 5


@dataclass(frozen=True)
class MethodScores:
    """Normalised scores of one row: a group of runs, or a method of the paper."""

    label: str
    method: str
    matrix: Matrix
    style: Style
    published: bool = False
    """Whether these are task means of the paper instead of runs."""


@dataclass
class Scores:
    """Everything that is computed before tables and figures are made."""

    rows: list[MethodScores] = field(default_factory=list)
    tasks: tuple[str, ...] = ()
    """The tasks of the aggregate statistics."""
    aggregates: dict[str, dict[str, Estimate]] = field(default_factory=dict)

    @property
    def own(self) -> list[MethodScores]:
        return [row for row in self.rows if not row.published]


def paper_label(method: str) -> str:
    return f"{TITLES[method]} (paper)"


def paper_rows(names: Sequence[str]) -> tuple[list[str], bool]:
    """Return the methods that `ReportOptions.paper` names, and whether it names the reward variants."""
    known = list(paper_scores.returns())
    for name in names:
        if name not in (*known, "all", "variants"):
            raise unknown("row of the paper", name, [*known, "all", "variants"])
    return [name for name in known if name in names or "all" in names], "variants" in names


def task_place(task: str) -> tuple[int, str]:
    """Sort key: tasks in the paper's order, then other tasks by name."""
    known = list(experts())
    return (known.index(task) if task in experts() else len(known), task)


def compute(study: Study, options: ReportOptions, notices: list[str]) -> Scores:
    """Compute normalised scores, the tasks that they cover and the aggregate statistics."""
    rows = []
    for group in study.main:
        scores = group.scores()
        known = [task for task in sorted(scores, key=task_place) if task in experts()]
        cells = {task: [normalised(task, score) for score in scores[task]] for task in known}
        if cells:
            rows.append(MethodScores(group.label, group.method, matrix(cells), study.styles[group.label]))
    without_expert = sorted({task for group in study.main for task in group.scores()} - set(experts()))
    if without_expert:
        notices.append(
            f"no expert score is known for {', '.join(without_expert)}: shown raw, excluded from the aggregate "
            "statistics"
        )
    covered = sorted({task for row in rows for task in row.matrix.tasks} or experts(), key=task_place)
    rows += [_paper_row(method, covered) for method in paper_rows(options.paper)[0]]
    if not rows:
        return Scores()
    rows, tasks = _common_tasks(sorted(rows, key=lambda row: place(row.method)), notices)
    return Scores(rows, tasks, {row.label: _aggregate(row, options) for row in rows})


def _paper_row(method: str, tasks: Sequence[str]) -> MethodScores:
    label = paper_label(method)
    means = {task: [normalised(task, paper_scores.returns()[method][task].mean)] for task in tasks}
    style = Style(COLOURS[method], styles([(label, method)])[label].marker, ":", hollow=True)
    return MethodScores(label, method, matrix(means), style, published=True)


def _aggregate(row: MethodScores, options: ReportOptions) -> dict[str, Estimate]:
    """Return the paper's statistics if the report covers all its tasks; otherwise compute them."""
    published = paper_scores.statistics()
    if row.published and row.method in published and len(row.matrix.tasks) == len(experts()):
        return {name: Estimate(value) for name, value in published[row.method].items()}
    return statistics.aggregate(row.matrix, options)


def _common_tasks(rows: list[MethodScores], notices: list[str]) -> tuple[list[MethodScores], tuple[str, ...]]:
    """Restrict every row to the tasks that all have, if there are any."""
    every = sorted({task for row in rows for task in row.matrix.tasks}, key=task_place)
    common = [task for task in every if all(task in row.matrix.tasks for row in rows)]
    if not common:
        notices.append("no task is common to all rows: the statistics of each cover its own tasks and do not compare")
        return rows, tuple(every)
    for task in every:
        if missing := ", ".join(row.label for row in rows if task not in row.matrix.tasks):
            notices.append(f"{task} is excluded from the aggregate statistics: no finished run of {missing}")
    return [replace(row, matrix=row.matrix.only(common)) for row in rows], tuple(common)


def coverage(scores: Scores) -> str:
    """List the tasks and the number of runs: one sentence for complete rows, one for each row with missing runs."""
    sentences, full = [], set()
    for row in scores.own:
        counts = dict(zip(row.matrix.tasks, row.matrix.counts.tolist(), strict=True))
        most = max(counts.values())
        fewer = [f"{task} ({counts.get(task, 0)})" for task in scores.tasks if counts.get(task, 0) < most]
        if fewer:
            sentences.append(f"{row.label}: {many(most, 'run')} per task, fewer for {', '.join(fewer)}.")
        else:
            full.add(most)
    if full:
        runs = f"{min(full)} to {max(full)} runs" if len(full) > 1 else many(min(full), "run")
        sentences.insert(0, f"{'The other' if sentences else 'All'} rows have {runs} in every task.")
    if any(row.matrix.counts.max() > 1 and row.matrix.counts.min() < FEW_RUNS for row in scores.own):
        sentences.append(
            f"Intervals from fewer than {FEW_RUNS} runs per task are too narrow: with three runs, a 95% interval "
            "contains the true value in about 80% of experiments."
        )
    if any(row.matrix.counts.max() > 1 == row.matrix.counts.min() for row in scores.own):
        sentences.append("Tasks with a single run add no spread.")
    return " ".join([f"Over {many(len(scores.tasks), 'task')}: {', '.join(scores.tasks)}.", *sentences])


def improvements(
    scores: Scores, options: ReportOptions, notices: list[str]
) -> tuple[MethodScores, list[tuple[MethodScores, Estimate]]]:
    """Return the reference row and its probability of improvement over each other row, on their common tasks."""
    reference = next((row for row in scores.own if row.method == options.reference), scores.own[0])
    if reference.method != options.reference and options.reference != ReportOptions.reference:
        notices.append(f"no finished runs of {options.reference}: {reference.label} is the reference instead")
    others = [row for row in scores.own if row is not reference and {*row.matrix.tasks} & {*reference.matrix.tasks}]
    return reference, [(row, statistics.improvement(reference.matrix, row.matrix, options)) for row in others]
