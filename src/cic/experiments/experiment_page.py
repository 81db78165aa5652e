"""One page with every figure, the paper's claim above it and what came out below it, in the report's design."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cic.report import figures, tables
from cic.report.page import Section, data_uri, figure_html, page
from cic.report.style import Style

if TYPE_CHECKING:
    from cic.experiments.reproduction import Drawn

MEDIA = 20_000_000
"""Bytes of films in a page at most."""


def write_page(path: Path, drawn: Sequence[Drawn]) -> None:
    keys: list[tuple[str, Style]] = []
    for one in drawn:
        for plot in one.outcome.plots:
            keys += [pair for pair in plot.legend.items() if pair not in keys]
    sections = [Section(one.experiment.name, one.experiment.title, _section(one, keys)) for one in drawn]
    members = [member for one in drawn for member in one.found.members]
    runs = {member.entry.name: member for member in members}
    notices = [f"{one.experiment.name}: {notice}" for one in drawn for notice in one.found.notices]
    facts = {
        "Experiments": str(len(drawn)),
        "Scale": ", ".join(dict.fromkeys(one.setup.scale for one in drawn)),
        "Runs": f"{sum(member.done for member in runs.values())} of {len(runs)}",
        "Steps": f"{sum(member.record.step for member in runs.values() if member.record):,}",
    }
    text = page(
        facts,
        [],
        notices,
        sections,
        [figures.key(style) for _, style in keys],
        title="Contrastive Intrinsic Control, reproduced",
        footer="Beside this page each experiment has a folder with its figures as PNG and PDF and its data as CSV.",
    )
    draft = path.with_suffix(".html.part")
    draft.write_text(text, encoding="utf-8", errors="replace")
    os.replace(draft, path)


def _section(one: Drawn, keys: Sequence[tuple[str, Style]]) -> str:
    experiment, outcome = one.experiment, one.outcome
    parts = [
        f'<p class="soft">{html.escape(experiment.question)} (In the paper: {html.escape(experiment.shows)}.)</p>',
        f"<p><strong>The paper:</strong> {html.escape(experiment.claim)}</p>",
    ]
    for plot in outcome.plots:
        if plot.panels:
            labels = [label if plot.legend.get(label) == style else "" for label, style in keys]
            parts.append(figure_html(plot, figures.svgs(plot), labels, experiment.title))
    parts.append(f"<p><strong>Here:</strong> {html.escape(outcome.said)}</p>")
    parts += [tables.to_html(table) for table in outcome.tables if table.rows]
    parts.append(_films(outcome.films))
    parts.append(f'<p class="soft"><code>{html.escape(one.command)}</code></p>')
    return "".join(parts)


def _films(paths: Sequence[Path]) -> str:
    shown, left = [], MEDIA
    for path in paths:
        content = path.read_bytes()
        left -= len(content)
        if left < 0:
            break
        title = html.escape(path.stem)
        source = data_uri("video/mp4", content)
        film = f'<video controls="controls" loop="loop" muted="muted" src="{source}" aria-label="{title}"></video>'
        shown.append(f"<figure>{film}<figcaption>{title}</figcaption></figure>")
    return f'<div class="media">{"".join(shown)}</div>' if shown else ""
