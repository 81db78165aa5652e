"""Figure "skill adaptation": ways to choose a skill within 4k steps of the task.

A run consists of the search alone: no update is made (`update_every` exceeds the budget), so the final return is that
of the chosen skill under the pre-trained policy.
"""

from __future__ import annotations

from cic.experiments.experiment import (
    Experiment,
    ExperimentResult,
    ExperimentSetup,
    PlannedRun,
    by_scale,
    finetune,
    pretrain,
    tasks_of,
)
from cic.experiments.experiment_runs import ExperimentRuns
from cic.experiments.panels import dots_panel, listed, mean_text
from cic.report.figures import Plot
from cic.report.figures.curve_plots import task_title
from cic.report.tables import Table

SEARCHES = {"grid": "grid sweep", "random": "random", "cem": "CEM", "cma": "CMA-ES", "fixed": "fixed"}
BEFORE = "pre-training"
NEVER = 10**9


class Adaptation(Experiment):
    name = "adaptation"
    title = "Choosing a skill"
    shows = "figure (c) of the skill ablations"
    question = "How should a skill be chosen within 4k steps of a task?"
    claim = "A simple grid sweep does best, given the small budget of 4k steps."
    domains = by_scale(("gridworld",), ("quadruped",), ("quadruped",))
    steps = by_scale(200, 4_000, 4_000)

    def runs(self, setup: ExperimentSetup) -> list[PlannedRun]:
        budget, found = self.steps[setup.scale], []
        for domain in self.domains_of(setup):
            tasks = [f"{domain}-{task}" for task in tasks_of(domain, ("stand", "run"))]
            for seed in self.seeds_of(setup):
                before = pretrain(setup, BEFORE, domain, seed)
                found.append(before)
                for task in tasks:
                    for search, title in SEARCHES.items():
                        settings = {"search": search, "steps": budget + 1, "warmup": budget, "eval_every": budget + 1}
                        found.append(
                            finetune(setup, before, task, title, update_every=NEVER, prior_data=0.0, **settings)
                        )
        return found

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        searches = list(SEARCHES.values())
        tasks = list(dict.fromkeys(member.task for member in found.members if member.task))
        scores = found.scores(searches, normalise=False)
        data = [{"task": m.task, "search": m.variant, "seed": m.seed, "return": score} for m, score in scores]
        panels, lines = [], []
        for task in tasks:
            values = {one: [score for m, score in scores if (m.variant, m.task) == (one, task)] for one in searches}
            lines.append([task, *(mean_text(values[search]) for search in searches)])
            panels.append(dots_panel(found, task_title(task), values, "Return of the chosen skill"))
        every = {search: [score for m, score in scores if m.variant == search] for search in searches}
        data.sort(key=lambda row: tasks.index(str(row["task"])))
        table = Table(
            "adaptation",
            self.title,
            "Return of the chosen skill, mean ± standard error over seeds.",
            ("Task", *searches),
            [*lines, ["all", *(mean_text(every[search]) for search in searches)]],
            records=data,
        )
        caption = (
            "Return of the skill that each search chose, under the pre-trained policy, which is not tuned: a dot per "
            "seed, mean ± standard error."
        )
        plot = Plot(self.name, self.title, caption, tuple(panels), {}, 2, (3.3, 1.9), (3.6, 2.1), 0.3)
        budget = self.steps[found.setup.scale]
        numbers = listed([f"{search} {mean_text(every[search])}" for search in searches])
        return ExperimentResult(
            (plot,), f"Mean return of the skill chosen within {budget:,} steps: {numbers}.", (table,), data
        )
