"""The main results in a few sentences: the first part of the page."""

from __future__ import annotations

import math

import numpy as np

from cic.report import statistics
from cic.report.groups import Study
from cic.report.options import ReportOptions
from cic.report.scores import FEW_RUNS, MethodScores, Scores
from cic.report.tables import count, interval, many

_SHOWN = 4


def findings(study: Study, scores: Scores, options: ReportOptions) -> list[str]:
    """State which method has the best mean, by how much, and whether the difference is significant."""
    runs = [run for group in study.groups for run in group.runs]
    ranked = sorted(scores.own, key=lambda row: -scores.aggregates[row.label]["mean"].value)
    sentences = _raw_returns(study)
    if ranked:
        best, steps = ranked[0], {run.steps for group in study.main for run in group.runs}
        after = f"After {count(*steps)} steps of finetuning" if len(steps) == 1 else "After finetuning"
        sentence = f"{after}, {best.label} reaches {_mean(scores, best)} of the expert return"
        sentence += f" on {many(len(scores.tasks), 'task')}"
        if len(ranked) > 1:
            sentence += f", the best of {len(ranked)} rows; next is {ranked[1].label} with {_mean(scores, ranked[1])}"
        sentences = [f"{sentence}.", *(_comparison(best, second, options) for second in ranked[1:2])]
    if not any(run.finished for run in runs):
        sentences.append("No run has finished yet, so there are no scores.")
    elif unfinished := sum(not run.finished for run in runs):
        sentences.append(f"{many(unfinished, 'unfinished run')} excluded.")
    return sentences


def _comparison(best: MethodScores, second: MethodScores, options: ReportOptions) -> str:
    tasks = [task for task in best.matrix.tasks if task in second.matrix.tasks]
    if not tasks:
        return f"{best.label} and {second.label} have no task in common."
    a, b = best.matrix.only(tasks), second.matrix.only(tasks)
    ahead = int((np.nanmean(a.values, axis=0) > np.nanmean(b.values, axis=0)).sum())
    chance = statistics.improvement(a, b, options)
    change = statistics.difference(a, b, options)["mean"]
    text = (
        f"{best.label} is better than {second.label} on {ahead} of {many(len(tasks), 'task')}; a run of {best.label} "
        f"scores higher than a run of {second.label} with probability {interval(chance)}. "
    )
    if not math.isfinite(change.low):
        return text + "With single runs, the difference may be due to chance."
    few = min(int(a.counts.min()), int(b.counts.min()))
    narrow = f", but intervals from {many(few, 'run')} per task are too narrow" if few < FEW_RUNS else ""
    verdict = "is above zero" if change.low > 0 else "contains zero: the difference may be due to chance"
    percent = f"{100 * options.confidence:g}%"
    return f"{text}The {percent} interval of the difference of the means, {interval(change)}, {verdict}{narrow}."


def _mean(scores: Scores, row: MethodScores) -> str:
    return f"{interval(scores.aggregates[row.label]['mean'])} ({many(int(row.matrix.counts.sum()), 'run')})"


def _raw_returns(study: Study) -> list[str]:
    """State raw returns, for tasks without an expert score."""
    sentences = []
    for task in sorted({task for group in study.finetune for task in group.scores()})[:_SHOWN]:
        means = {g.label: float(np.mean(found[task])) for g in study.finetune if task in (found := g.scores())}
        ranked = sorted(means, key=means.__getitem__, reverse=True)[:_SHOWN]
        listed = ", ".join(f"{label} {means[label]:.4g}" for label in ranked)
        sentences.append(f"Mean return on {task} after finetuning: {listed}.")
    return sentences
