"""Table of the four intrinsic rewards."""

from __future__ import annotations

import math

import numpy as np

from cic.core import paper_scores
from cic.experiments.experiment import (
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
from cic.experiments.panels import PAPER, PAPER_STYLE, dots_panel, listed, mean_text
from cic.report.figures import Plot
from cic.report.tables import Table, number, words


class Rewards(Experiment):
    name = "rewards"
    title = "Intrinsic rewards"
    shows = "the table of reward variants"
    question = "Which intrinsic reward should CIC have beside its representation learning?"
    claim = (
        "Entropy alone does best (0.78 on average over walker and quadruped), before uncertainty (0.77), similarity "
        "(0.71) and the discriminator (0.62): the discriminator is of use for the representation."
    )
    seeds = by_scale(1, 3, 3)
    domains = by_scale(("walker",), ("walker", "quadruped"), ("walker", "quadruped"))
    tasks = by_scale(1, 4, 4)
    variants = ("discriminator", "similarity", "uncertainty", "entropy")

    def runs(self, setup: ExperimentSetup) -> list[PlannedRun]:
        found = []
        for domain in self.domains_of(setup):
            tasks = first_tasks(domain, self.tasks[setup.scale])
            for seed in self.seeds_of(setup):
                for variant in self.variants:
                    before = pretrain(setup, variant, domain, seed, reward=variant)
                    found += [before, *(finetune(setup, before, task) for task in tasks)]
        return found

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        domains = list(dict.fromkeys(member.domain for member in found.members))
        published = paper_scores.reward_variants()
        found_scores = [one for domain in domains for one in found.scores(self.variants, domain=domain)]
        data = [
            {"domain": m.domain, "reward": m.variant, "task": m.task, "seed": m.seed, "score": score}
            for m, score in found_scores
        ]
        scores = {
            domain: {v: [s for m, s in found_scores if (m.domain, m.variant) == (domain, v)] for v in self.variants}
            for domain in domains
        }
        panels = []
        for domain in domains:
            theirs = {variant: published[variant].get(domain, math.nan) for variant in self.variants}
            panels.append(dots_panel(found, words(domain), scores[domain], "Normalised score", theirs))
        caption = (
            "Normalised score after finetuning: a dot per task and seed, mean ± standard error; open diamonds are the "
            "paper's means over 4 tasks and 3 seeds."
        )
        keys = {PAPER: PAPER_STYLE}
        plot = Plot(self.name, self.title, caption, tuple(panels), keys, 2, (3.3, 1.9), (3.6, 2.1), 0.3)
        means = {
            variant: [float(np.mean(scores[domain][variant])) for domain in domains if scores[domain][variant]]
            for variant in self.variants
        }
        parts = listed(
            [f"{variant} {mean_text(values[:1] and [float(np.mean(values))])}" for variant, values in means.items()]
        )
        runs = len(data)
        summary = f"Mean normalised score over {listed(domains)} ({runs} finetunings): {parts}."
        return ExperimentResult((plot,), summary, (self._table(scores, means),), data)

    def _table(self, scores: dict[str, dict[str, list[float]]], means: dict[str, list[float]]) -> Table:
        """The paper's table, its rows beside ours."""
        published = paper_scores.reward_variants()
        lines, records = [], []
        for domain in [*scores, "mean"]:
            ours = {
                variant: _mean(means[variant] if domain == "mean" else scores[domain][variant])
                for variant in self.variants
            }
            for source, values in (
                ("runs", ours),
                ("paper", {variant: published[variant].get(domain, math.nan) for variant in self.variants}),
            ):
                name = words(domain) + (" (paper)" if source == "paper" else "")
                lines.append([name, *(number(values[variant]) for variant in self.variants)])
                records += [
                    {"domain": domain, "reward": variant, "score": values[variant], "source": source}
                    for variant in self.variants
                ]
        caption = "Normalised score of CIC by intrinsic reward, beside the paper's."
        header = ("Domain", *(words(variant) for variant in self.variants))
        return Table("rewards", self.title, caption, header, lines, records=records)


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else math.nan
