"""Learning curves per domain, from the runs of `main`."""

from __future__ import annotations

from dataclasses import replace

from cic.experiments.experiment import ExperimentResult
from cic.experiments.experiment_runs import ExperimentRuns
from cic.experiments.urlb_experiment import URLBExperiment, gaps, study
from cic.report import scores
from cic.report.figures import Plot, curve_plots
from cic.report.learning_curves import curve, normalised_series
from cic.report.options import ReportOptions
from cic.report.tables import count
from cic.runs.records import split_task


class DomainCurves(URLBExperiment):
    name = "curves"
    title = "Learning curves by domain"
    shows = "the learning curves of finetuning by domain"
    question = "How fast do pre-trained agents learn, in each domain?"
    claim = (
        "CIC surpasses the prior state of the art on walker and jaco and ties with it on quadruped; it is the only "
        "method that does well in all three domains."
    )

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        grouped, options = study(found), ReportOptions()
        computed = scores.compute(grouped, options, found.notices)
        plot = curve_plots.sample_efficiency(grouped, found.metrics, computed, options)
        if plot is None:
            return ExperimentResult((Plot(self.name, self.title, "No finetuning is done.", (), {}),), "No run is done.")
        data, ends = [], []
        for domain in dict.fromkeys(split_task(task)[0] for task in computed.tasks):
            tasks = [task for task in computed.tasks if split_task(task)[0] == domain]
            last = []
            for group in grouped.finetune:
                line = curve(normalised_series(group, found.metrics, tasks))
                if line is None:
                    continue
                columns = zip(line.steps, line.mean, line.low, line.high, strict=True)
                data += [
                    {"domain": domain, "method": group.label, "step": int(s), "mean": m, "low": a, "high": b}
                    for s, m, a, b in columns
                ]
                last.append((float(line.mean[-1]), group.label, int(line.steps[-1])))
            score, label, steps = max(last)
            ends.append(f"{domain} {label} ({score:.2f} after {count(steps)} steps)")
        summary = f"Highest mean normalised score at the end: {'; '.join(ends)}."
        shown = replace(plot, name=self.name, title=self.title, caption=plot.caption + gaps(found))
        return ExperimentResult((shown,), summary, data=data)
