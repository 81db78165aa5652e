"""Beyond the paper: CIC's presets `distinct` and `released`, with and without relabelled pre-training data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cic.experiments.experiment import (
    PROTOCOL,
    Experiment,
    ExperimentResult,
    ExperimentSetup,
    PlannedRun,
    by_scale,
    finetune,
    first_tasks,
    pretrain,
)
from cic.experiments.experiment_runs import ExperimentRuns
from cic.experiments.panels import dots_panel, listed
from cic.report import statistics
from cic.report.figures import Plot
from cic.report.skills import compare
from cic.report.statistics import Bootstrap, Estimate, Matrix
from cic.report.tables import Table, interval, number, words
from cic.training.skill_variance import BEHAVIOUR

SKILLS, STARTS = by_scale(3, 24, 24), by_scale(2, 4, 4)
RELEASED, DISTINCT = "released", "distinct"
PRIOR = {"prior_data": 0.5}
ALL = "all"


def measure_explained(run: Path, scale: str) -> dict[str, Any]:
    """Measure the share of the variance between episodes that the skill explains."""
    found = compare(run, count=SKILLS[scale], starts=STARTS[scale])
    return {name: share.value for name, share in found.shares.items()}


class Beyond(Experiment):
    name = "beyond"
    title = "Beyond the released method"
    shows = "nothing of the paper: CIC's preset `distinct` against `released`"
    question = "How far does CIC get with skills that differ, and with more than the weights handed on?"
    claim = (
        "The paper has no such comparison. Its released reward does not reward different skills, and its finetuning "
        "inherits weights alone."
    )
    seeds = by_scale(2, 4, 10)
    domains = by_scale(("walker",), ("walker", "quadruped"), ("walker", "quadruped"))
    tasks = by_scale(1, 4, 4)
    presets: ClassVar[Mapping[str, dict[str, Any]]] = {
        RELEASED: {"normaliser": "variance", "library": 0},
        DISTINCT: {"preset": DISTINCT},
    }
    """Settings of the pre-trainings."""
    variants: ClassVar[Mapping[str, tuple[str, dict[str, Any]]]] = {
        RELEASED: (RELEASED, PROTOCOL),
        "released, relabelled replay": (RELEASED, PROTOCOL | PRIOR),
        DISTINCT: (DISTINCT, {"search": "auto"} | PRIOR),
    }
    """Variant → pre-training and settings of its finetuning. The first is the baseline."""
    measurements = {"explained": measure_explained}  # noqa: RUF012

    def runs(self, setup: ExperimentSetup) -> list[PlannedRun]:
        found: list[PlannedRun] = []
        for domain in self.domains_of(setup):
            tasks = first_tasks(domain, self.tasks[setup.scale])
            for seed in self.seeds_of(setup):
                before = {name: pretrain(setup, name, domain, seed, **of) for name, of in self.presets.items()}
                found += before.values()
                for variant, (preset, settings) in self.variants.items():
                    found += [finetune(setup, before[preset], task, variant, **settings) for task in tasks]
        return found

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        domains = list(dict.fromkeys(member.domain for member in found.members))
        scores = {domain: {variant: _scores(found, variant, domain) for variant in self.variants} for domain in domains}
        shares = {variant: _shares(found, preset) for variant, (preset, _) in self.variants.items()}
        table, summary = self._compared(scores, shares)
        panels = [
            dots_panel(
                found,
                words(domain),
                {v: [s for many in by_task.values() for s in many] for v, by_task in of.items()},
                "Normalised score",
            )
            for domain, of in scores.items()
        ]
        panels.append(dots_panel(found, "Skills", shares, "Explained of the behaviour"))
        caption = (
            "Normalised score after finetuning, a dot per task and seed; share of the behaviour's variance that the "
            "skill explains before it, a dot per pre-training; mean ± standard error."
        )
        plot = Plot(self.name, self.title, caption, tuple(panels), {}, 3, (2.9, 1.9), (3.2, 2.1), 0.3)
        data = [
            {"variant": m.variant, "task": m.task, "seed": m.seed, "score": score}
            for m, score in found.scores(self.variants)
        ]
        return ExperimentResult((plot,), summary, (table,), data)

    def _compared(
        self, scores: Mapping[str, Mapping[str, Mapping[str, list[float]]]], shares: Mapping[str, list[float]]
    ) -> tuple[Table, str]:
        """Tabulate each variant's IQM, its difference from the baseline and its explained share."""
        places = {domain: {v: statistics.matrix(by_task) for v, by_task in of.items()} for domain, of in scores.items()}
        places[ALL] = {
            v: statistics.matrix({task: many for of in scores.values() for task, many in of[v].items()})
            for v in self.variants
        }
        lines, records, parts = [], [], []
        for variant in self.variants:
            share = float(np.mean(shares[variant])) if shares[variant] else math.nan
            line = [variant]
            for place, of in places.items():
                own, above = _iqm(of[variant]), _above(of[variant], of[RELEASED])
                line.append(number(own.value))
                records.append(
                    {
                        "variant": variant, "domain": place, "runs": int(of[variant].counts.sum()),
                        "iqm": own.value, "low": own.low, "high": own.high,
                        "above": above.value, "above_low": above.low, "above_high": above.high, "explained": share,
                    }
                )  # fmt: skip
            lines.append([*line, "" if variant == RELEASED else interval(above), number(share)])
            parts.append(f"{variant} {line[-1]}" + ("" if variant == RELEASED else f" ({interval(above)} above)"))
        header = ("CIC", *(words(place) for place in places), "Above released", "Skills explain")
        caption = (
            "IQM of the normalised scores after finetuning, the difference over all tasks from the variant released "
            "with its 95 % interval, and the mean share of the behaviour's variance that the skill explains."
        )
        total = sum(int(matrix.counts.sum()) for matrix in places[ALL].values())
        summary = f"IQM over all tasks ({total} finetunings): {listed(parts)}." if total else "No run is done."
        return Table(self.name, self.title, caption, header, lines, records=records), summary


def _scores(found: ExperimentRuns, variant: str, domain: str) -> dict[str, list[float]]:
    """By task."""
    scores: dict[str, list[float]] = {}
    for member, score in found.scores([variant], domain=domain):
        scores.setdefault(member.task, []).append(score)
    return scores


def _shares(found: ExperimentRuns, variant: str) -> list[float]:
    measured = [member.measured.get("explained", {}) for member in found.of(variant)]
    return [float(values[BEHAVIOUR]) for values in measured if BEHAVIOUR in values]


def _iqm(scores: Matrix) -> Estimate:
    return statistics.aggregate(scores, Bootstrap())["iqm"] if scores.tasks else Estimate(math.nan)


def _above(scores: Matrix, others: Matrix) -> Estimate:
    if not set(scores.tasks) & set(others.tasks):
        return Estimate(math.nan)
    return statistics.difference(scores, others, Bootstrap())["iqm"]
