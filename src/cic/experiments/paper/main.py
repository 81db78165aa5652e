"""The main result: aggregate figure, table of statistics and table of raw scores."""

from __future__ import annotations

from dataclasses import replace

from cic.experiments.experiment import ExperimentResult
from cic.experiments.experiment_runs import ExperimentRuns
from cic.experiments.panels import listed
from cic.experiments.urlb_experiment import URLBExperiment, gaps, study
from cic.report import score_tables, scores
from cic.report.figures import score_plots
from cic.report.options import ReportOptions
from cic.report.tables import number


class Main(URLBExperiment):
    name = "main"
    title = "Adaptation efficiency on URLB"
    shows = "the aggregate figure, the tables of statistics and raw scores, and how far the order is the paper's"
    question = "How well do pre-trained agents learn tasks in 100k steps, by method?"
    claim = (
        "After 2M steps without reward and 100k with, CIC has an IQM of 0.77 of the expert's return over 12 tasks and "
        "10 seeds: 79 % above the next skill discovery method (APS) and 18 % above the next of all (ProtoRL)."
    )

    def result(self, found: ExperimentRuns) -> ExperimentResult:
        options = ReportOptions(paper=("all",))
        grouped = study(found)
        computed = scores.compute(grouped, options, found.notices)
        plot = score_plots.aggregate(computed, options)
        caption = f"{plot.caption} Open markers: the paper's numbers.{gaps(found)}"
        order = score_tables.order_table(computed, options)
        tables = (
            score_tables.aggregate_table(computed, options),
            *([order] if order.rows else []),  # of three methods and more
            score_tables.raw_table(grouped, options),
        )
        ranked = sorted(computed.own, key=lambda row: -computed.aggregates[row.label]["iqm"].value)
        numbers = listed([f"{row.label} {number(computed.aggregates[row.label]['iqm'].value)}" for row in ranked])
        runs = sum(int(row.matrix.counts.sum()) for row in computed.own)
        summary = (
            f"IQM over {len(computed.tasks)} tasks and {runs} finetunings: {numbers}." if ranked else "No run is done."
        )
        shown = replace(plot, name=self.name, caption=caption)
        return ExperimentResult((shown,), summary, tables, tables[0].records)
