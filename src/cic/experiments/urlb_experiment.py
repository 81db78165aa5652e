"""The runs of the paper's main results, which two experiments draw."""

from __future__ import annotations

from cic.core.paper_scores import TITLES
from cic.experiments.experiment import (
    DDPG,
    Experiment,
    ExperimentSetup,
    PlannedRun,
    by_scale,
    finetune,
    first_tasks,
    pretrain,
    scratch,
)
from cic.experiments.experiment_runs import ExperimentRuns
from cic.report import groups, warnings
from cic.report.groups import Study

METHODS = ("cic", "icm", "disagreement", "rnd", "apt", "proto", "smm", "diayn", "aps")
URLB = ("walker", "quadruped", "jaco")


class URLBExperiment(Experiment):
    """Every method and DDPG on URLB's twelve tasks: pre-train, then finetune to each task of the domain."""

    seeds = by_scale(1, 3, 10)
    domains = by_scale(("walker",), URLB, URLB)
    methods = by_scale(("cic", "diayn"), METHODS, METHODS)
    tasks = by_scale(2, 4, 4)
    """How many of each domain's."""

    def runs(self, setup: ExperimentSetup) -> list[PlannedRun]:
        found = []
        for domain in self.domains_of(setup):
            tasks = first_tasks(domain, self.tasks[setup.scale])
            for seed in self.seeds_of(setup):
                for method in self.methods[setup.scale]:
                    before = pretrain(setup, TITLES[method], domain, seed, method)
                    found += [before, *(finetune(setup, before, task) for task in tasks)]
                found += [scratch(setup, task, seed) for task in tasks]
        return found


def study(found: ExperimentRuns) -> Study:
    """Group the runs as the report does."""
    counted = warnings.without_duplicates(found.records, found.notices)
    return groups.study(counted, found.notices)


def gaps(found: ExperimentRuns) -> str:
    """Return a sentence about methods with missing finetunings; an empty text if there are none."""
    lacking = []
    for variant in found.variants:
        tuned = [member for member in found.members if member.variant == variant and member.entry.kind == "finetune"]
        done = sum(member.done for member in tuned)
        if done < len(tuned):
            lacking.append(f"{TITLES[DDPG] if variant == DDPG else variant} {done} of {len(tuned)}")
    return f" Finetunings that are there: {', '.join(lacking)}." if lacking else ""
