"""The main results in a few sentences: the first part of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from cic.report import statistics
from cic.report.groups import Study
from cic.report.learning_curves import Metrics
from cic.report.options import ReportOptions
from cic.report.scores import FEW_RUNS, MethodScores, Scores
from cic.report.tables import count, interval, many, number
from cic.runs.records import RunRecord
from cic.runs.untrusted import plain

_SHOWN = 4


def findings(study: Study, scores: Scores, loaded: Metrics, options: ReportOptions) -> list[str]:
    sentences = [*_scores(study, scores, options), *_coverage(study, loaded)]
    if not sentences:
        sentences.append("No run has finished yet, so there are no scores.")
    unfinished = sum(not run.finished for group in study.groups for run in group.runs)
    if unfinished and scores.own:
        sentences.append(
            "1 run has not finished and is excluded."
            if unfinished == 1
            else f"{unfinished} runs have not finished and are excluded."
        )
    return sentences


def _scores(study: Study, scores: Scores, options: ReportOptions) -> list[str]:
    """State which method has the best mean, by how much, and whether the difference is significant."""
    ranked = sorted(scores.own, key=lambda row: -scores.aggregates[row.label]["mean"].value)
    if not ranked:
        return _raw_returns(study)
    best = ranked[0]
    after = f"After {count(study.budget.steps)} steps of finetuning" if study.budget else "After finetuning"
    reached = f"{after}, {best.label} reaches {_mean(scores, best)} of the expert return"
    tasks = many(len(scores.tasks), "task")
    if len(ranked) == 1:
        return [f"{reached} on {tasks}.", *_paper(scores)]
    second = ranked[1]
    rank = f", the best of {len(ranked)} rows; next is {second.label} with" if len(ranked) > 2 else f", {second.label}"
    sentences = [f"{reached} on {tasks}{rank} {_mean(scores, second)}."]
    common = [task for task in best.matrix.tasks if task in second.matrix.tasks]
    if common:
        sentences.append(_comparison(best, second, common, options))
    return [*sentences, *_paper(scores)]


def _comparison(best: MethodScores, second: MethodScores, tasks: Sequence[str], options: ReportOptions) -> str:
    means = [np.nanmean(row.matrix.only(tasks).values, axis=0) for row in (best, second)]
    ahead = int((means[0] > means[1]).sum())
    chance = statistics.improvement(best.matrix, second.matrix, options.bootstrap)
    change = statistics.difference(best.matrix, second.matrix, options.bootstrap)["mean"]
    text = (
        f"{best.label} is better than {second.label} on {ahead} of {many(len(tasks), 'task')}; a run of {best.label} "
        f"scores higher than a run of {second.label} with probability {interval(chance)}. "
    )
    if not math.isfinite(change.low):
        return text + "With single runs, the difference may be due to chance."
    between = f"The {100 * options.confidence:g}% interval of the difference of the means, {interval(change)}, "
    few = min(int(row.matrix.only(tasks).counts.min()) for row in (best, second))
    narrow = f", but intervals from {many(few, 'run')} per task are too narrow" if few < FEW_RUNS else ""
    verdict = "is above zero" if change.low > 0 else "contains zero: the difference may be due to chance"
    return f"{text}{between}{verdict}{narrow}."


def _mean(scores: Scores, row: MethodScores) -> str:
    return f"{interval(scores.aggregates[row.label]['mean'])} ({many(int(row.matrix.counts.sum()), 'run')})"


def _paper(scores: Scores) -> list[str]:
    """State the paper's score of each own method, if the report shows the paper's rows."""
    own = {row.method for row in scores.own}
    means = [
        f"{row.label} {number(scores.aggregates[row.label]['mean'].value)}"
        for row in scores.rows
        if row.published and row.method in own
    ]
    return [f"On the same tasks the paper reports: {', '.join(means)}."] if means else []


def _raw_returns(study: Study) -> list[str]:
    """State raw returns, for tasks without an expert score."""
    sentences = []
    for task in sorted({task for group in study.finetune for task in group.scores()})[:_SHOWN]:
        means = {
            group.label: float(np.mean(found[task])) for group in study.finetune if task in (found := group.scores())
        }
        listed = ", ".join(f"{label} {means[label]:.4g}" for label in _ranked(means)[:_SHOWN])
        sentences.append(f"Mean return on {task} after finetuning: {listed}.")
    return sentences


def _coverage(study: Study, loaded: Metrics) -> list[str]:
    """State the fraction of cells of the state space that pre-training has visited."""
    sentences = []
    for domain in sorted({run.domain for group in study.pretrain for run in group.runs})[:_SHOWN]:
        reached, finished = {}, []
        for group in study.pretrain:
            runs = [run for run in group.runs if run.domain == domain and run.finished]
            finished += runs
            series = [loaded[run.path]["coverage/fraction"] for run in runs if "coverage/fraction" in loaded[run.path]]
            if ends := [one.values[-1] for one in series if len(one.values)]:
                reached[group.label] = float(np.mean(ends))
        if ranked := _ranked(reached):
            listed = ", ".join(f"{label} {100 * reached[label]:.3g}%" for label in ranked[:_SHOWN])
            more = f" and {len(ranked) - _SHOWN} more" if len(ranked) > _SHOWN else ""
            sentences.append(f"Fraction of {domain} cells visited in pre-training: {listed}{more}{_cells(finished)}.")
    return sentences


def _ranked(values: Mapping[str, float]) -> list[str]:
    return sorted(values, key=values.__getitem__, reverse=True)


def _cells(runs: Sequence[RunRecord]) -> str:
    """Describe the cells, if the runs recorded them."""
    recorded = {plain((run.result or {}).get("coverage/of") or "") for run in runs}
    if len(recorded) > 1:
        return ", counted in different cells"
    return "".join(f" ({text})" for text in recorded if text)
