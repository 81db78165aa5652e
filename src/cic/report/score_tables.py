"""Tables of scores: aggregate statistics, raw scores, comparison with the paper, improvement, reward variants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cic.core import paper_scores
from cic.core.paper_scores import experts
from cic.report.figures.style import place
from cic.report.groups import Study
from cic.report.options import ReportOptions
from cic.report.scores import MethodScores, Scores, coverage, paper_label, paper_rows, task_place
from cic.report.statistics import Estimate, normalised, order, standard_error
from cic.report.tables import Best, Table, interval, number, plus_minus, words
from cic.runs.records import split_task

if TYPE_CHECKING:
    from pandas import DataFrame

STATISTIC_TITLES = {"median": "Median ↑", "iqm": "IQM ↑", "mean": "Mean ↑", "optimality_gap": "Optimality gap ↓"}


def aggregate_table(scores: Scores, options: ReportOptions) -> Table:
    best = {}
    for name in STATISTIC_TITLES:
        sign = -1 if name == "optimality_gap" else 1
        values = {row.label: sign * scores.aggregates[row.label][name].value for row in scores.own}
        best[name] = max(values, key=values.__getitem__) if len(values) > 1 else None
    lines: list[list[str]] = []
    records: list[dict[str, Any]] = []
    for row in scores.rows:
        runs = "" if row.published else int(row.matrix.counts.sum())
        line = [row.label]
        for name in STATISTIC_TITLES:
            value, low, high = estimate = scores.aggregates[row.label][name]
            line.append(Best(interval(estimate)) if best[name] == row.label else interval(estimate))
            records.append(
                {"method": row.label, "statistic": name, "value": value, "low": low, "high": high, "runs": runs}
                | {"tasks": len(row.matrix.tasks), "source": "paper" if row.published else "runs"}
            )
        lines.append([*line, str(runs) or "–"])
    intervals = any(math.isfinite(record["low"]) for record in records)
    with_intervals = f", with {100 * options.confidence:g}% stratified bootstrap intervals" if intervals else ""
    caption = f"Expert-normalised scores after finetuning{with_intervals}. {coverage(scores)}"
    if len(scores.own) < len(scores.rows):
        caption += " Rows marked (paper) are published numbers, not runs of this report."
    header = ("Method", *STATISTIC_TITLES.values(), "Runs")
    return Table("aggregate", "Aggregate statistics", caption, header, lines, records=records)


def raw_table(study: Study, options: ReportOptions) -> Table:
    """Return mean ± standard error of the return in the paper's layout: one row per task, one column per method."""
    cells = _raw_scores(study, options)
    own = cells[cells.source == "runs"]
    usual = int(own.runs.mode().max()) if len(own) else 10
    labels = list(dict.fromkeys(cells.sort_values("method", key=lambda names: names.map(place), kind="stable").label))
    lines, records, above = [], [], ""
    for task in sorted(set(cells.task), key=task_place):
        domain, name = split_task(task)
        expert, here = experts().get(task, math.nan), cells[cells.task == task].set_index("label")
        ours = here[here.source == "runs"]["mean"]
        line = [words(domain) if domain != above else "", words(name or domain), number(expert, 0)]
        for label in labels:
            score: dict[str, Any] = {"mean": math.nan, "stderr": math.nan, "runs": 0}
            if label in here.index:
                score = here.loc[label, ["mean", "stderr", "runs"]].to_dict()
            text = plus_minus(score["mean"], score["stderr"])
            text += f" ({score['runs']})" if score["runs"] not in (0, usual) else ""
            line.append(Best(text) if len(ours) > 1 and label == ours.idxmax() else text)
            source = "paper" if label not in set(own.label) else "runs"
            records.append(
                {"domain": domain, "task": name, "expert": expert, "method": label, **score}
                | {"normalised": score["mean"] / expert, "source": source}
            )
        lines.append(line)
        above = domain
    caption = f"Return after finetuning: mean ± standard error over {usual} run(s), or over the number in parentheses."
    return Table(
        "raw_scores", "Raw scores", caption, ("Domain", "Task", "Expert", *labels), lines, heads=2, records=records
    )


def _raw_scores(study: Study, options: ReportOptions) -> DataFrame:
    """Return label, method, task, mean, stderr, runs and source of each cell."""
    from pandas import DataFrame

    cells = [
        (group.label, group.method, task, float(np.mean(scores)), standard_error(scores), len(scores), "runs")
        for group in study.finetune
        for task, scores in group.scores().items()
    ]
    own = {task for _, _, task, *_ in cells}
    cells += [
        (paper_label(method), method, task, *score, 10, "paper")
        for method in paper_rows(options.paper)[0]
        for task, score in paper_scores.returns()[method].items()
        if not own or task in own
    ]
    return DataFrame(cells, columns=["label", "method", "task", "mean", "stderr", "runs", "source"])


# ---- the paper's order ----------------------------------------------------------------------------------------------


def order_table(scores: Scores, options: ReportOptions) -> Table:
    """Compare the order of the methods in each domain with the paper's."""
    from pandas import DataFrame

    lines, records = [], []
    for domain in dict.fromkeys(split_task(task)[0] for task in scores.tasks):
        tasks = [task for task in scores.tasks if split_task(task)[0] == domain and task in experts()]
        rows = [row for row in scores.own if row.method in paper_scores.returns() and {*tasks} <= {*row.matrix.tasks}]
        if not tasks or len(rows) < 3:
            continue
        matrices = [row.matrix.only(tasks) for row in rows]
        found = DataFrame(
            {
                "domain": domain,
                "paper_mean": [_paper_mean(row.method, tasks) for row in rows],
                "method": [row.label for row in rows],
                "mean": [float(np.nanmean(matrix.values, axis=0).mean()) for matrix in matrices],
            }
        )
        found["place"] = found["mean"].rank(ascending=False, method="min").astype(int)
        found["paper_place"] = found.paper_mean.rank(ascending=False, method="min").astype(int)
        records += found.to_dict("records")
        ranked = found.sort_values("place", kind="stable")
        furthest = found.iloc[(-(found.place - found.paper_place).abs()).argsort(kind="stable")[:2]]
        correlation = order(matrices, list(found.paper_mean), options)
        ranks = [f"{name} {number(mean)}" for name, mean in zip(ranked.method, ranked["mean"], strict=True)]
        apart = [f"{row.method} ({row.place}., in the paper {row.paper_place}.)" for row in furthest.itertuples()]
        lines.append([words(domain), interval(correlation), " > ".join(ranks), ", ".join(apart)])
    caption = (
        "Spearman's rank correlation between the mean normalised scores of the methods and those of the paper, with an "
        "interval from resampled runs, and the two methods whose ranks differ most."
    )
    header = ("Domain", "ρ", "Order here", "Furthest apart")
    return Table("order", "The paper's order", caption, header, lines, words=True, records=records)


def _paper_mean(method: str, tasks: Sequence[str]) -> float:
    return float(np.mean([normalised(task, paper_scores.returns()[method][task].mean) for task in tasks]))


# ---- improvement and reward variants -------------------------------------------------------------------------------


def improvement_table(reference: MethodScores, found: Sequence[tuple[MethodScores, Estimate]]) -> Table:
    lines = [[row.label, interval(estimate)] for row, estimate in found]
    records = [
        {"x": reference.label, "y": row.label, "probability": e.value, "low": e.low, "high": e.high} for row, e in found
    ]
    caption = f"Probability that a run of {reference.label} scores higher than a run of the other method on a task."
    header = ("Y", f"P({reference.label} > Y)")
    return Table("improvement", "Probability of improvement", caption, header, lines, records=records)


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
    return Table("reward_variants", "Reward variants", caption, header, lines, records=records)


def _own_variants(study: Study) -> dict[str, dict[str, float]]:
    """Return reward → domain → mean over tasks of the mean over runs, for rewards with a single row."""
    found: dict[str, list[dict[str, float]]] = {}
    for group in study.finetune:
        rewards = {str(run.config.get("options", {}).get("reward", "entropy")) for run in group.runs}
        if group.method == "cic" and len(rewards) == 1:
            means = {task: normalised(task, float(np.mean(returns))) for task, returns in group.scores().items()}
            domains = {
                domain: float(np.mean([means[task] for task in means if split_task(task)[0] == domain] or [math.nan]))
                for domain in ("walker", "quadruped")
            }
            found.setdefault(rewards.pop(), []).append(domains | {"mean": float(np.mean(list(domains.values())))})
    return {reward: rows[0] for reward, rows in found.items() if len(rows) == 1}
