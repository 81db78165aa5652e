"""What a reader wants to know first, in a few plain sentences made from the numbers of the report."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cic.report import statistics
from cic.report.budgets import count
from cic.report.groups import Study
from cic.report.learning_curves import Metrics
from cic.report.options import ReportOptions
from cic.report.score_tables import interval
from cic.report.scores import FEW, Row, Scores
from cic.report.tables import many, number
from cic.runs.records import RunRecord
from cic.runs.untrusted_json import plain

_SHOWN = 4


def findings(study: Study, scores: Scores, loaded: Metrics, options: ReportOptions) -> list[str]:
    sentences = [*_scores(study, scores, options), *_coverage(study, loaded)]
    if not sentences:
        sentences.append("No run has finished so far, so there are no scores yet.")
    unfinished = sum(not run.finished for group in study.groups for run in group.runs)
    if unfinished and scores.own:
        verb = "has" if unfinished == 1 else "have"
        sentences.append(f"{many(unfinished, 'run')} {verb} not finished; these numbers are without.")
    return sentences


def _scores(study: Study, scores: Scores, options: ReportOptions) -> list[str]:
    """Who is ahead, by how much, and whether it could be chance."""
    ranked = sorted(scores.own, key=lambda row: -scores.aggregates[row.label]["mean"].value)
    if not ranked:
        return _raw(study)
    best = ranked[0]
    after = f"After {count(study.budget.steps)} steps of finetuning" if study.budget else "After finetuning"
    reached = f"{after}, {best.label} reaches {_mean(scores, best)} of the experts' return"
    tasks = many(len(scores.tasks), "task")
    if len(ranked) == 1:
        return [f"{reached} on {tasks}.", *_paper(scores)]
    second = ranked[1]
    rank = f", the most of {len(ranked)} rows; next is {second.label} with" if len(ranked) > 2 else f", {second.label}"
    sentences = [f"{reached} on {tasks}{rank} {_mean(scores, second)}."]
    common = [task for task in best.matrix.tasks if task in second.matrix.tasks]
    if common:
        sentences.append(_duel(best, second, common, options))
    return [*sentences, *_paper(scores)]


def _duel(best: Row, second: Row, tasks: Sequence[str], options: ReportOptions) -> str:
    means = [np.nanmean(row.matrix.only(tasks).values, axis=0) for row in (best, second)]
    ahead = int((means[0] > means[1]).sum())
    chance = statistics.improvement(best.matrix, second.matrix, options.bootstrap)
    change = statistics.difference(best.matrix, second.matrix, options.bootstrap)["mean"]
    text = (
        f"{best.label} is ahead of {second.label} on {ahead} of {many(len(tasks), 'task')}, and one of its runs beats "
        f"one of {second.label} with probability {interval(chance)}. "
    )
    if not math.isfinite(change.low):
        return text + "Single runs say nothing about chance."
    between = f"The {100 * options.confidence:g}% interval of the difference of the means, {interval(change)}, "
    few = min(int(row.matrix.only(tasks).counts.min()) for row in (best, second))
    narrow = f", though intervals of {many(few, 'run')} per task are too narrow" if few < FEW else ""
    return text + between + ("is above zero" if change.low > 0 else "holds zero: it may be chance") + f"{narrow}."


def _mean(scores: Scores, row: Row) -> str:
    """The mean as a fraction of the experts', its interval, and of how many runs."""
    return f"{interval(scores.aggregates[row.label]['mean'])} ({many(int(row.matrix.counts.sum()), 'run')})"


def _paper(scores: Scores) -> list[str]:
    """The paper's number for each own method that it has, if its rows are shown."""
    own = {row.method for row in scores.own}
    means = [
        f"{row.label} {number(scores.aggregates[row.label]['mean'].value)}"
        for row in scores.rows
        if row.published and row.method in own
    ]
    return [f"On the same tasks the paper reports: {', '.join(means)}."] if means else []


def _raw(study: Study) -> list[str]:
    """For tasks that no expert score makes comparable."""
    sentences = []
    for task in sorted({task for group in study.finetune for task in group.scores()})[:_SHOWN]:
        means = {
            group.label: float(np.mean(group.scores()[task])) for group in study.finetune if task in group.scores()
        }
        ranked = sorted(means, key=means.__getitem__, reverse=True)
        listed = ", ".join(f"{label} {means[label]:.4g}" for label in ranked[:_SHOWN])
        sentences.append(f"Mean return on {task} after finetuning: {listed}.")
    return sentences


def _coverage(study: Study, loaded: Metrics) -> list[str]:
    """Where pre-training has got to: the share of the state space's cells that its last steps have covered."""
    sentences = []
    for domain in sorted({run.domain for group in study.pretrain for run in group.runs})[:_SHOWN]:
        reached, here = {}, []
        for group in study.pretrain:
            runs = [run for run in group.runs if run.domain == domain and run.finished]
            here += runs
            series = [loaded[run.path]["coverage/fraction"] for run in runs if "coverage/fraction" in loaded[run.path]]
            if ends := [one.values[-1] for one in series if len(one.values)]:
                reached[group.label] = float(np.mean(ends))
        ranked = sorted(reached, key=reached.__getitem__, reverse=True)
        if ranked:
            listed = ", ".join(f"{label} {100 * reached[label]:.3g}%" for label in ranked[:_SHOWN])
            more = f" and {len(ranked) - _SHOWN} more" if len(ranked) > _SHOWN else ""
            sentences.append(
                f"Share of {domain}'s cells visited by the end of pre-training: {listed}{more}{_of(here)}."
            )
    return sentences


def _of(runs: Sequence[RunRecord]) -> str:
    """What the share is of, where the runs say so."""
    said = {plain((run.result or {}).get("coverage/of") or "") for run in runs}
    if len(said) > 1:
        return ", counted in different cells"
    return "".join(f" ({text})" for text in said if text)
