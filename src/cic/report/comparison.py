"""`cic compare A B`: the difference of two groups of runs, for each task and overall."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cic.core.config import with_fields
from cic.core.errors import UserError
from cic.core.paper_scores import experts
from cic.report import groups, statistics, warnings
from cic.report.groups import RunGroup
from cic.report.options import CompareOptions
from cic.report.score_tables import STATISTIC_TITLES
from cic.report.scores import task_place
from cic.report.statistics import Estimate, matrix, normalised, standard_error
from cic.report.tables import interval, many, number
from cic.runs import records

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def compare(
    a: Path | str | Sequence[Path | str],
    b: Path | str | Sequence[Path | str],
    options: CompareOptions | None = None,
    **fields: Any,
) -> RenderableType:
    """Compare two groups of finetuning runs.

    Args:
        a: The first group: run folders, or folders of run folders.
        b: The second group.
        options: Options of the comparison.
        **fields: Fields of `CompareOptions` by name; they override `options`.

    Returns:
        A table for `rich.print`: A − B and P(A > B) with intervals, for each common task and over all tasks.

    Example:
        ```python
        import rich

        rich.print(cic.compare("runs/cic", "runs/rnd", reps=2000))
        ```
    """
    from rich.console import Group
    from rich.text import Text

    options = with_fields(options or CompareOptions(), fields)
    notices: list[str] = []
    first, second = _group("A", a, options, notices), _group("B", b, options, notices)
    shared = {run.path.resolve() for run in first.runs} & {run.path.resolve() for run in second.runs}
    if shared:
        raise UserError(f"{next(iter(shared)).name} is in both groups; a run cannot be compared with itself")
    named = [RunGroup(f"{g.label} ({name})", g.method, g.runs) for g, name in ((first, "A"), (second, "B"))]
    warnings.budgets(named, notices)
    lines = [Text(f"! {notice}", style="yellow") for notice in notices]
    return Group(*lines, _table(first, second, options))


def _group(
    name: str, folders: Path | str | Sequence[Path | str], options: CompareOptions, notices: list[str]
) -> RunGroup:
    """Return the finished finetuning runs at or below `folders`; all must belong to one group."""
    paths = [Path(path) for path in ([folders] if isinstance(folders, Path | str) else folders)]
    found, problems = records.read(paths)
    notices += problems
    runs = warnings.without_duplicates([run for run in found if run.scored], notices)
    warnings.states(runs, notices)
    runs = [run for run in runs if math.isfinite(run.score)]
    if not runs:
        raise UserError(
            f"group {name} ({', '.join(map(str, paths))}) contains no finished finetuning run: give other folders"
        )
    rows = groups.study(runs, [], options.mix).finetune
    if len(rows) == 1:
        return rows[0]
    labels = ", ".join(row.label for row in rows)
    if not options.mix:
        raise UserError(
            f"group {name} contains runs with different settings ({labels}); give fewer folders or set `mix`"
        )
    notices.append(f"group {name} averages {labels} because of `mix`")
    return RunGroup(labels, rows[0].method, tuple(runs))


def _table(a: RunGroup, b: RunGroup, options: CompareOptions) -> Table:
    from rich.markup import escape
    from rich.table import Table

    ours, theirs = a.scores(), b.scores()
    tasks = [task for task in sorted(ours, key=task_place) if task in theirs]
    if not tasks:
        raise UserError(f"the groups have no common task: A has {', '.join(ours)}, B has {', '.join(theirs)}")
    table = Table(title=f"A: {escape(a.label)}\nB: {escape(b.label)}", title_justify="left", caption_justify="left")
    table.box, table.pad_edge, table.padding = None, False, (0, 2, 0, 0)  # fits into 80 columns
    table.add_column("Task", overflow="fold")
    for heading in ("A", "B", f"difference, {100 * options.confidence:g}%", "P(A > B)"):
        table.add_column(heading, justify="right", no_wrap=True)  # a long task name may wrap, an interval must not
    counts = {len(side[task]) for side in (ours, theirs) for task in tasks}
    for task in tasks:
        table.add_row(escape(task), *_row(task, ours[task], theirs[task], len(counts) > 1, options))
    known = [task for task in tasks if task in experts()]
    if known:
        table.add_row()
        for row in _overall({t: ours[t] for t in known}, {t: theirs[t] for t in known}, options):
            table.add_row(*row)
    left = ", ".join(sorted({*ours, *theirs} - set(tasks), key=task_place))
    runs = f"over {many(min(counts), 'run')}" if len(counts) == 1 else "(runs)"
    table.caption = f"Mean ± standard error {runs}."
    table.caption += " Below: statistics of the normalised scores." if known else ""
    table.caption += f" Excluded because only one group has it: {escape(left)}." if left else ""
    if counts == {1}:
        table.caption += (
            " Nothing can be concluded from one run per side: the difference may be due to chance. "
            "Run at least five seeds of each."
        )
    return table


def _row(task: str, ours: list[float], theirs: list[float], counted: bool, options: CompareOptions) -> list[str]:
    digits = 0 if max(map(abs, (*ours, *theirs))) >= 10 else 2
    x, y = matrix({task: ours}), matrix({task: theirs})
    change = statistics.difference(x, y, options)["mean"]
    means = []
    for scores in (ours, theirs):
        error = standard_error(scores)
        text = number(float(np.mean(scores)), digits)
        text += f" ± {number(error, digits)}" if math.isfinite(error) else ""
        means.append(text + (f" ({len(scores)})" if counted else ""))
    return [*means, _signed(change, digits), interval(statistics.improvement(x, y, options))]


def _overall(
    ours: dict[str, list[float]], theirs: dict[str, list[float]], options: CompareOptions
) -> Iterator[list[str]]:
    """Return one row per statistic of the normalised scores, with the probability of improvement next to the mean."""
    x, y = (matrix({t: [normalised(t, s) for s in returns] for t, returns in side.items()}) for side in (ours, theirs))
    changes, chance = statistics.difference(x, y, options), statistics.improvement(x, y, options)
    values = zip(*(statistics.aggregates(side.values[None])[0] for side in (x, y)), strict=True)
    for (name, heading), (a, b) in zip(STATISTIC_TITLES.items(), values, strict=True):
        improvement = interval(chance) if name == "mean" else ""
        yield [heading[:-2], number(a), number(b), _signed(changes[name], 2), improvement]


def _signed(change: Estimate, digits: int) -> str:
    text = interval(change, digits)
    return text if text.startswith("−") else f"+{text}"
