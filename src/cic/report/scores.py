"""Groups of runs → the numbers of the report: normalised scores, what they cover, statistics, improvement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cic.core.paper_scores import experts
from cic.report import paper, statistics
from cic.report.groups import Group, Study
from cic.report.options import ReportOptions
from cic.report.statistics import Estimate, Matrix, matrix, normalised
from cic.report.style import COLOURS, Style, place, styles

FEW = 5


@dataclass(frozen=True)
class Row:
    """One method's normalised scores: a user's group of runs or the paper's."""

    label: str
    method: str
    matrix: Matrix
    style: Style
    published: bool = False
    """The paper's: task means instead of runs."""


@dataclass
class Scores:
    """Everything that is computed before anything is drawn."""

    rows: list[Row] = field(default_factory=list)
    tasks: tuple[str, ...] = ()
    """What the aggregate statistics cover."""
    coverage: str = ""
    aggregates: dict[str, dict[str, Estimate]] = field(default_factory=dict)

    @property
    def own(self) -> list[Row]:
        return [row for row in self.rows if not row.published]


def compute(study: Study, options: ReportOptions, notices: list[str]) -> Scores:
    """Normalised scores, the tasks that they cover and the aggregate statistics."""
    methods, _ = paper.select(options.paper)
    own = [row for group in study.finetune if (row := _own(group, study.styles[group.label])).matrix.tasks]
    unknown = sorted({task for group in study.finetune for task in group.scores()} - set(experts()))
    if unknown:
        notices.append(f"no expert score is known for {', '.join(unknown)}: shown raw, not in the aggregate statistics")
    covered = sorted({task for row in own for task in row.matrix.tasks} or experts(), key=task_place)
    rows = [*own, *(_published(method, covered) for method in methods)]
    result = Scores(sorted(rows, key=lambda row: place(row.method)))
    if result.rows:
        _cover(result, options.tasks, notices)
        result.coverage = _coverage(result)
        result.aggregates = {row.label: _aggregate(row, options) for row in result.rows}
    return result


def task_place(task: str) -> tuple[int, str]:
    """Sort key: the paper's order of tasks, then the others by name."""
    known = list(experts())
    return (known.index(task) if task in experts() else len(known), task)


def _own(group: Group, style: Style) -> Row:
    scores = group.scores()
    tasks = [task for task in sorted(scores, key=task_place) if task in experts()]
    cells = {task: [normalised(task, score) for score in scores[task]] for task in tasks}
    return Row(group.label, group.method, matrix(cells), style)


def _published(method: str, tasks: Sequence[str]) -> Row:
    label = paper.label(method)
    means = {task: [normalised(task, paper.scores()[method][task].mean)] for task in tasks}
    marker = styles([(label, method)])[label].marker
    return Row(label, method, matrix(means), Style(COLOURS[method], marker, ":", hollow=True), published=True)


def _aggregate(row: Row, options: ReportOptions) -> dict[str, Estimate]:
    """The paper's published statistics where the report covers all of its tasks, else those of its task means."""
    if row.published and row.method in paper.statistics() and len(row.matrix.tasks) == len(experts()):
        return {name: Estimate(value) for name, value in paper.statistics()[row.method].items()}
    return statistics.aggregate(row.matrix, options.bootstrap)


def _cover(result: Scores, rule: str, notices: list[str]) -> None:
    """Restrict every row to the tasks that all rows have, or say that rows cover different tasks."""
    every = sorted({task for row in result.rows for task in row.matrix.tasks}, key=task_place)
    common = [task for task in every if all(task in row.matrix.tasks for row in result.rows)]
    if rule == "common" and common:
        for task in [task for task in every if task not in common]:
            without = ", ".join(row.label for row in result.rows if task not in row.matrix.tasks)
            notices.append(
                f"{task} is not in the aggregate statistics: no finished run of {without} (--tasks each keeps it)"
            )
        result.rows = [replace(row, matrix=row.matrix.only(common)) for row in result.rows]
        result.tasks = tuple(common)
        return
    if len(common) < len(every):
        reason = "as asked" if rule == "each" else "because no task is common to all"
        notices.append(f"each row's aggregate statistics cover its own tasks, {reason}: rows are not comparable")
    result.tasks = tuple(every)


def _coverage(result: Scores) -> str:
    """Which tasks, and who has how many runs: one sentence for full grids, one for each row with holes."""
    sentences, full = [], set()
    for row in result.own:
        counts = dict(zip(row.matrix.tasks, row.matrix.counts.tolist(), strict=True))
        most = max(counts.values())
        fewer = [f"{task} ({counts.get(task, 0)})" for task in result.tasks if counts.get(task, 0) < most]
        if fewer:
            sentences.append(f"{row.label}: {most} run(s) per task, fewer for {', '.join(fewer)}.")
        else:
            full.add(most)
    if full:
        runs = f"{min(full)} to {max(full)}" if len(full) > 1 else str(*full)
        sentences.insert(0, f"{'The other' if sentences else 'All'} rows have {runs} run(s) in every task.")
    single = [row.label for row in result.own if row.matrix.counts.min() == 1 < row.matrix.counts.max()]
    if single:
        sentences.append(f"The intervals of {', '.join(single)} leave out the spread of tasks with a single run.")
    if any(row.matrix.counts.max() > 1 and row.matrix.counts.min() < FEW for row in result.own):
        sentences.append(
            f"Intervals from fewer than {FEW} runs per task are too narrow: of three runs, a 95% interval holds the "
            "true value in about 80% of experiments."
        )
    return " ".join([f"Over {len(result.tasks)} task(s): {', '.join(result.tasks)}.", *sentences])


def improvements(scores: Scores, options: ReportOptions, notices: list[str]) -> tuple[Row, list[tuple[Row, Estimate]]]:
    """P(reference beats each other row) over their common tasks. The paper's rows have no runs to compare."""
    reference = next((row for row in scores.own if row.method == options.reference), scores.own[0])
    if reference.method != options.reference and options.reference != ReportOptions.reference:
        notices.append(f"no finished runs of {options.reference}: {reference.label} is the reference instead")
    found = []
    for row in scores.own:
        if row is not reference and set(row.matrix.tasks) & set(reference.matrix.tasks):
            found.append((row, statistics.improvement(reference.matrix, row.matrix, options.bootstrap)))
    return reference, found
