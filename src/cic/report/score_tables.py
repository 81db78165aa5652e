"""Tables of scores: aggregate statistics, raw scores, comparison with the paper, improvement, reward variants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cic.core import paper_scores
from cic.core.paper_scores import experts
from cic.report.figures.style import place
from cic.report.groups import Study
from cic.report.options import ReportOptions
from cic.report.scores import MethodScores, Scores, paper_label, paper_rows, task_place
from cic.report.statistics import Estimate, normalised, order, standard_error
from cic.report.tables import Cell, Table, interval, number, rows, words
from cic.runs.records import split_task

STATISTIC_TITLES = {"median": "Median ↑", "iqm": "IQM ↑", "mean": "Mean ↑", "optimality_gap": "Optimality gap ↓"}


def aggregate_table(scores: Scores, options: ReportOptions) -> Table:
    best = _best(scores)
    lines: list[list[str | Cell]] = []
    records = []
    for row in scores.rows:
        estimates = scores.aggregates[row.label]
        runs = "" if row.published else int(row.matrix.counts.sum())
        texts = [Cell(interval(estimates[name]), best[name] == row.label) for name in STATISTIC_TITLES]
        lines.append([row.label, *texts, str(runs) or "–"])
        for name in STATISTIC_TITLES:
            value, low, high = estimates[name]
            records.append(
                {"method": row.label, "statistic": name, "value": value, "low": low, "high": high, "runs": runs}
                | {"tasks": len(row.matrix.tasks), "source": "paper" if row.published else "runs"}
            )
    intervals = any(math.isfinite(e.low) for row in scores.rows for e in scores.aggregates[row.label].values())
    with_intervals = f", with {100 * options.confidence:g}% stratified bootstrap intervals" if intervals else ""
    caption = f"Expert-normalised scores after finetuning{with_intervals}. {scores.coverage}"
    if any(row.published for row in scores.rows):
        caption += " Rows marked (paper) are published numbers, not runs of this report."
    header = ("Method", *STATISTIC_TITLES.values(), "Runs")
    return Table("aggregate", "Aggregate statistics", caption, header, rows(lines), records=records)


def _best(scores: Scores) -> dict[str, str]:
    best = {}
    for name in STATISTIC_TITLES:
        sign = -1 if name == "optimality_gap" else 1
        values = {row.label: sign * scores.aggregates[row.label][name].value for row in scores.own}
        best[name] = max(values, key=values.__getitem__) if len(values) > 1 else ""
    return best


# ---- raw scores ----------------------------------------------------------------------------------------------------


class _Score(NamedTuple):
    mean: float = math.nan
    stderr: float = math.nan
    runs: int = 0


class _Column(NamedTuple):
    label: str
    method: str
    published: bool
    scores: dict[str, _Score]


def raw_table(study: Study, options: ReportOptions) -> Table:
    """Return mean ± standard error of the return in the paper's layout: one row per task, one column per method."""
    columns = _columns(study, options)
    tasks = sorted({task for column in columns for task in column.scores}, key=task_place)
    counts = [score.runs for column in columns if not column.published for score in column.scores.values()]
    usual = max(set(counts), key=counts.count) if counts else 10
    lines, records, above = [], [], ""
    for task in tasks:
        domain, name = split_task(task)
        expert = experts().get(task, math.nan)
        means = {c.label: c.scores[task].mean for c in columns if task in c.scores and not c.published}
        best = max(means, key=means.__getitem__) if len(means) > 1 else ""
        line: list[str | Cell] = [words(domain) if domain != above else "", words(name or domain), number(expert, 0)]
        for column in columns:
            score = column.scores.get(task, _Score())
            line.append(Cell(_plus_minus(score, usual), column.label == best))
            records.append(
                {"domain": domain, "task": name, "expert": expert, "method": column.label, **score._asdict()}
                | {"normalised": score.mean / expert, "source": "paper" if column.published else "runs"}
            )
        lines.append(line)
        above = domain
    caption = f"Return after finetuning: mean ± standard error over {usual} run(s), or over the number in parentheses."
    header = ("Domain", "Task", "Expert", *(column.label for column in columns))
    return Table("raw_scores", "Raw scores", caption, header, rows(lines), heads=2, records=records)


def _columns(study: Study, options: ReportOptions) -> list[_Column]:
    columns = []
    for group in study.finetune:
        scores = {t: _Score(float(np.mean(s)), standard_error(s), len(s)) for t, s in group.scores().items()}
        columns.append(_Column(group.label, group.method, False, scores))
    own = {task for column in columns for task in column.scores}
    for method in paper_rows(options.paper)[0]:
        scores = {
            task: _Score(*score, 10) for task, score in paper_scores.returns()[method].items() if not own or task in own
        }
        columns.append(_Column(paper_label(method), method, True, scores))
    return sorted(columns, key=lambda column: place(column.method))


def _plus_minus(score: _Score, usual: int) -> str:
    digits = 0 if abs(score.mean) >= 10 else 2
    spread = f" ± {number(score.stderr, digits)}" if math.isfinite(score.stderr) else ""
    return number(score.mean, digits) + spread + (f" ({score.runs})" if score.runs not in (0, usual) else "")


# ---- the paper's order ----------------------------------------------------------------------------------------------


def order_table(scores: Scores, options: ReportOptions) -> Table:
    """Compare the order of the methods in each domain with the paper's."""
    lines, records = [], []
    for domain in dict.fromkeys(split_task(task)[0] for task in scores.tasks):
        tasks = [task for task in scores.tasks if split_task(task)[0] == domain and task in experts()]
        methods = [
            row for row in scores.own if row.method in paper_scores.returns() and set(tasks) <= set(row.matrix.tasks)
        ]
        if not tasks or len(methods) < 3:
            continue
        matrices = [row.matrix.only(tasks) for row in methods]
        here = [float(np.nanmean(values.values, axis=0).mean()) for values in matrices]
        there = [_paper_mean(row.method, tasks) for row in methods]
        found = [
            _Placed(row.label, mean, place, paper_place)
            for row, mean, place, paper_place in zip(methods, here, _places(here), _places(there), strict=True)
        ]
        records += [
            {"domain": domain, "paper_mean": mean, **place._asdict()} for place, mean in zip(found, there, strict=True)
        ]
        ranked = " > ".join(f"{one.method} {number(one.mean)}" for one in sorted(found, key=lambda one: one.place))
        furthest = sorted(found, key=lambda one: -abs(one.place - one.paper_place))[:2]
        apart = ", ".join(f"{one.method} ({one.place}., in the paper {one.paper_place}.)" for one in furthest)
        lines.append([words(domain), interval(order(matrices, there, options.bootstrap)), ranked, apart])
    caption = (
        "Spearman's rank correlation between the mean normalised scores of the methods and those of the paper, with an "
        "interval from resampled runs, and the two methods whose ranks differ most."
    )
    header = ("Domain", "ρ", "Order here", "Furthest apart")
    return Table("order", "The paper's order", caption, header, rows(lines), words=True, records=records)


class _Placed(NamedTuple):
    method: str
    mean: float
    place: int
    paper_place: int


def _paper_mean(method: str, tasks: Sequence[str]) -> float:
    return float(np.mean([normalised(task, paper_scores.returns()[method][task].mean) for task in tasks]))


def _places(values: Sequence[float]) -> list[int]:
    """Return ranks, 1 for the highest value."""
    return [1 + sum(other > value for other in values) for value in values]


# ---- improvement and reward variants -------------------------------------------------------------------------------


def improvement_table(reference: MethodScores, found: Sequence[tuple[MethodScores, Estimate]]) -> Table:
    lines = [[row.label, interval(estimate)] for row, estimate in found]
    records = [
        {"x": reference.label, "y": row.label, "probability": e.value, "low": e.low, "high": e.high} for row, e in found
    ]
    caption = f"Probability that a run of {reference.label} scores higher than a run of the other method on a task."
    header = ("Y", f"P({reference.label} > Y)")
    return Table("improvement", "Probability of improvement", caption, header, rows(lines), records=records)


def variants_table(study: Study) -> Table:
    """Return the scores of the four rewards of CIC, from the paper and from runs that set `options.reward`."""
    published = paper_scores.reward_variants()
    sources = {"paper": published, "runs": _own_variants(study)}
    lines, records = [], []
    for domain in ("walker", "quadruped", "mean"):
        for source, values in sources.items():
            if not values:
                continue
            scores = [values.get(variant, {}).get(domain, math.nan) for variant in published]
            lines.append([words(domain) + (" (paper)" if source == "paper" else ""), *(number(s) for s in scores)])
            for variant, score in zip(published, scores, strict=True):
                records.append({"domain": domain, "reward": variant, "score": score, "source": source})
    caption = (
        "Normalised score of CIC by intrinsic reward; the paper's over 3 seeds and 4 tasks per domain. –: no runs, or "
        "several rows that must not be averaged."
    )
    header = ("Domain", *(words(variant) for variant in published))
    return Table("reward_variants", "Reward variants", caption, header, rows(lines), records=records)


def _own_variants(study: Study) -> dict[str, dict[str, float]]:
    """Return reward → domain → mean over tasks of the mean over runs, for rewards with a single row."""
    groups: dict[str, list[dict[str, list[float]]]] = {}
    for group in study.finetune:
        rewards = {str(run.config.get("options", {}).get("reward", "entropy")) for run in group.runs}
        if group.method == "cic" and len(rewards) == 1:
            groups.setdefault(rewards.pop(), []).append(group.scores())
    return {reward: _domain_means(rows[0]) for reward, rows in groups.items() if len(rows) == 1}


def _domain_means(scores: dict[str, list[float]]) -> dict[str, float]:
    means = {task: float(np.mean([normalised(task, score) for score in returns])) for task, returns in scores.items()}
    domains = {}
    for domain in ("walker", "quadruped"):
        values = [mean for task, mean in means.items() if split_task(task)[0] == domain and task in experts()]
        domains[domain] = float(np.mean(values)) if values else math.nan
    return domains | {"mean": (domains["walker"] + domains["quadruped"]) / 2}
