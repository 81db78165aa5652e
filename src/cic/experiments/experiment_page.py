"""One page with every figure, the paper's claim above it and the result below it, in the report's design."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cic.report import page
from cic.report.figures.style import Style
from cic.report.page import Medium, Section, data_uri, figure_html, render, table_html

if TYPE_CHECKING:
    from markupsafe import Markup

    from cic.experiments.reproduction import DrawnExperiment

MEDIA = 20_000_000
"""Maximum size of the films in a page, in bytes."""


def write_page(path: Path, drawn: Sequence[DrawnExperiment]) -> None:
    keys: list[tuple[str, Style]] = []
    for one in drawn:
        for plot in one.result.plots:
            keys += [pair for pair in plot.legend.items() if pair not in keys]
    members = [member for one in drawn for member in one.found.members]
    runs = {member.entry.name: member for member in members}
    facts = {
        "Experiments": str(len(drawn)),
        "Scale": ", ".join(dict.fromkeys(one.setup.scale for one in drawn)),
        "Runs": f"{sum(member.done for member in runs.values())} of {len(runs)}",
        "Steps": f"{sum(member.record.step for member in runs.values() if member.record):,}",
    }
    page.write_page(
        path,
        [Section(one.experiment.name, one.experiment.title, [_section(one, keys)]) for one in drawn],
        facts,
        [style for _, style in keys],
        notices=[f"{one.experiment.name}: {notice}" for one in drawn for notice in one.found.notices],
        title="Contrastive Intrinsic Control, reproduced",
        footer="The folder of this page has a folder per experiment with its figures (PNG, PDF) and its data (CSV).",
    )


def _section(one: DrawnExperiment, keys: Sequence[tuple[str, Style]]) -> Markup:
    figures = []
    for plot in one.result.plots:
        if plot.panels:
            labels = [label if plot.legend.get(label) == style else "" for label, style in keys]
            figures.append(figure_html(plot, labels, one.experiment.title))
    films = _films(one.result.films)
    return render(
        "experiment.html",
        experiment=one.experiment,
        result=one.result,
        sound=one.found.sound_text,
        figures=figures,
        tables=[table_html(table) for table in one.result.tables if table.rows],
        films=render("media.html", items=films, loop_films=True) if films else "",
        command=one.command,
    )


def _films(paths: Sequence[Path]) -> list[Medium]:
    shown, left = [], MEDIA
    for path in paths:
        content = path.read_bytes()
        left -= len(content)
        if left < 0:
            break
        shown.append(Medium(path.stem, data_uri("video/mp4", content)))
    return shown
