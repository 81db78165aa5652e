"""The HTML page: one file, no scripts, nothing from the network; every element that may be closed is closed."""

from __future__ import annotations

import base64
import html
import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from cic import __version__
from cic.report.figures import Panel, Plot

_UNFOLDED = 3
FOOTER = (
    "Every figure is in figures/ as PNG and PDF, every table in tables/ as CSV, Markdown and LaTeX, beside this page."
)
NO_SECTION = "<p>There is nothing to show yet.</p>"


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    body: str


def page(
    facts: dict[str, str],
    findings: Sequence[str],
    notices: Sequence[str],
    sections: Sequence[Section],
    keys: Sequence[str],
    refresh: float | None = None,
    title: str = "Skill discovery: report",
    footer: str = FOOTER,
) -> str:
    """The whole document. `keys` are the legend's images in the order of `figure_html`'s labels."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    css = importlib.resources.files("cic.report").joinpath("page.css").read_text(encoding="utf-8")
    reload = f'<meta http-equiv="refresh" content="{max(1, round(refresh))}">' if refresh else ""
    links = "".join(f'<li><a href="#{section.id}">{html.escape(section.title)}</a></li>' for section in sections)
    going = ", while runs are going on" if refresh else ""
    body = "".join(_section(section) for section in sections) or NO_SECTION
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{reload}<title>{html.escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{css}
{_key_rules(keys)}
</style>
</head>
<body>
<a class="skip" href="#content">Skip to the results</a>
<header>
<h1>{html.escape(title)}</h1>
<p class="soft">Made by cic {html.escape(__version__)} on {now}{going}.</p>
{_findings(findings)}
{_facts(facts)}
</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main id="content">
{_notices(notices)}
{body}
</main>
<footer><p>{html.escape(footer)}</p></footer>
</body>
</html>
"""


def figure_html(plot: Plot, images: Sequence[str], labels: Sequence[str], section: str) -> str:
    """The figure's panels, each an image of its own, under one legend; titled if the section is not titled so."""
    title = f"<h3>{html.escape(plot.title)}</h3>" if plot.title != section else ""
    entries = "".join(
        f'<li><span class="key key-{labels.index(label)}"></span>{html.escape(label)}</li>' for label in plot.legend
    )
    legend = f'<ul class="legend">{entries}</ul>' if entries else ""
    panels = "".join(_panel(plot, panel, image) for panel, image in zip(plot.panels, images, strict=True))
    shape = {1: " wide", 4: " pairs" if plot.alone[0] > 3.1 else ""}.get(len(plot.panels), "")
    width = round((120 if len(plot.panels) == 1 else 90) * plot.alone[0])  # at 90 pixels per inch four fit in a row
    return (
        f'<figure id="figure-{plot.name}">{title}{legend}'
        f'<div class="panels{shape}" style="--width: min(100%, {width}px)">{panels}</div>'
        f"<figcaption>{html.escape(plot.caption)}</figcaption></figure>"
    )


def _panel(plot: Plot, panel: Panel, image: str) -> str:
    width, height = (round(96 * inches) for inches in plot.alone)
    title = f"<p>{html.escape(panel.title)}</p>" if panel.title != plot.title else ""
    source = data_uri("image/svg+xml", image.encode())
    alt = html.escape(panel.alt)
    return f'<div class="panel">{title}<img src="{source}" alt="{alt}" width="{width}" height="{height}"></div>'


def data_uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _key_rules(keys: Sequence[str]) -> str:
    """One CSS rule per method: its piece of line is stored once, however many legends show it."""
    return "\n".join(
        f".key-{index} {{ background-image: url({data_uri('image/svg+xml', image.encode())}); }}"
        for index, image in enumerate(keys)
    )


def _facts(facts: dict[str, str]) -> str:
    items = "".join(f"<div><dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd></div>" for k, v in facts.items())
    return f'<dl class="facts">{items}</dl>'


def _findings(findings: Sequence[str]) -> str:
    items = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in findings)
    return f'<section class="findings" aria-label="Findings">{items}</section>' if items else ""


def _notices(notices: Sequence[str]) -> str:
    """Many of them are folded: they must not push what was found out of sight."""
    if not notices:
        return ""
    items = "".join(f"<li>{html.escape(notice)}.</li>" for notice in (text.rstrip(".") for text in notices))
    opened = ' open="open"' if len(notices) <= _UNFOLDED else ""
    summary = f"<summary>Notes on the runs ({len(notices)})</summary>"
    return f'<section class="notices" aria-label="Notes"><details{opened}>{summary}<ul>{items}</ul></details></section>'


def _section(section: Section) -> str:
    title = html.escape(section.title)
    name = f"{section.id}-title"
    return f'<section id="{section.id}" aria-labelledby="{name}"><h2 id="{name}">{title}</h2>{section.body}</section>'
