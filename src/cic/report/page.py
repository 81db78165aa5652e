"""The HTML page, rendered from the Jinja2 templates in `templates/`.

The page is one file without scripts or network requests. Templates escape every value, so text from an untrusted run
folder is shown as text.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cic import __version__
from cic.report.figures import Plot, key, svgs
from cic.report.figures.style import Style
from cic.report.tables import Table

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

FOOTER = "The folder of this page has every figure in figures/ (PNG, PDF) and every table in tables/ (CSV, MD, TeX)."


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    parts: Sequence[Markup]


@dataclass(frozen=True)
class Medium:
    """A picture or film of a run, embedded in the page."""

    caption: str
    uri: str
    wide: bool = False


def write_page(
    path: Path,
    sections: Sequence[Section],
    facts: dict[str, str],
    styles: Sequence[Style],
    *,
    findings: Sequence[str] = (),
    notices: Sequence[str] = (),
    title: str = "Skill discovery: report",
    footer: str = FOOTER,
) -> None:
    """Write the page atomically. `styles` are those of the legends, in the order of the labels of `figure_html`."""
    text = render(
        "page.html",
        sections=sections,
        facts=facts,
        legend_images=[_svg_uri(key(style)) for style in styles],
        findings=findings,
        notices=notices,
        title=title,
        footer=footer,
        version=__version__,
        time=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )
    draft = path.with_suffix(".html.part")
    draft.write_text(text, encoding="utf-8", errors="replace")  # a config may contain half a surrogate pair
    os.replace(draft, path)


def figure_html(plot: Plot, labels: Sequence[str], section: str) -> Markup:
    """Render the panels of a figure, each as an image, below one legend."""
    count, (width, height) = len(plot.panels), plot.alone
    return render(
        "figure.html",
        plot=plot,
        panels=list(zip(plot.panels, map(_svg_uri, svgs(plot)), strict=True)),
        labels=labels,
        section=section,
        layout={1: " wide", 4: " pairs" if width > 3.1 else ""}.get(count, ""),
        column_width=round((120 if count == 1 else 90) * width),  # four columns fit at 90 pixels per inch
        width=round(96 * width),
        height=round(96 * height),
    )


def table_html(table: Table) -> Markup:
    return render("table.html", table=table)


def data_uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def render(template: str, **values: Any) -> Markup:
    """Render one of the templates; values are escaped unless they were rendered before."""
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(values))


def _svg_uri(image: str) -> str:
    return data_uri("image/svg+xml", image.encode())


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("cic.report")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
