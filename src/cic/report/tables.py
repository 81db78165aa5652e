"""A table for people (HTML, Markdown, LaTeX) and for programs (CSV, one number per field)."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FORMULA = re.compile(r"\s*[=+\-@]|\t")
_NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?")
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "×": r"$\times$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


@dataclass(frozen=True)
class Cell:
    text: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of text in fixed columns. A row whose first cell is empty continues the block above it."""

    name: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    heads: int = 1
    """How many leading columns name the row."""
    words: bool = False
    """Cells are text: aligned left, the last one wrapped."""
    records: Sequence[Mapping[str, Any]] = field(default=())
    """The same as data: one dict per number, written as CSV."""


def cell(value: str | Cell) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)


def rows(lines: Sequence[Sequence[str | Cell]]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(tuple(cell(value) for value in line) for line in lines)


def write(table: Table, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for ending, text in (("csv", to_csv(table)), ("md", to_markdown(table)), ("tex", to_latex(table))):
        path = folder / f"{table.name}.{ending}"
        path.write_text(text, encoding="utf-8", errors="replace")
        written.append(path)
    return written


def to_csv(table: Table) -> str:
    """Full precision; an absent number is an empty field."""
    if not table.records:
        return ""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(table.records[0]), lineterminator="\n")
    writer.writeheader()
    for record in table.records:
        writer.writerow({key: _csv_cell(value) for key, value in record.items()})
    return buffer.getvalue()


def to_markdown(table: Table) -> str:
    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(texts) + " |"

    align = ["---" if index < table.heads else "---:" for index in range(len(table.columns))]
    body = [line([f"**{markdown(c.text)}**" if c.best else markdown(c.text) for c in row]) for row in table.rows]
    head = line([markdown(column) for column in table.columns])
    return "\n".join([head, line(align), *body, "", markdown(table.caption), ""])


def to_latex(table: Table) -> str:
    """A `table` with booktabs rules; needs \\usepackage{booktabs,graphicx}."""
    align = "l" * table.heads + "c" * (len(table.columns) - table.heads)
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        r"\resizebox{\ifdim\width>\linewidth \linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        " & ".join(latex(column) for column in table.columns) + r" \\",
        r"\midrule",
    ]
    for index, row in enumerate(table.rows):
        if index and table.heads > 1 and row[0].text:
            lines.append(r"\midrule")
        lines.append(" & ".join(rf"\textbf{{{latex(c.text)}}}" if c.best else latex(c.text) for c in row) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}}", rf"\caption{{{latex(table.caption)}}}", rf"\label{{tab:{table.name}}}"]
    return "\n".join([*lines, r"\end{table}", ""])


def to_html(table: Table) -> str:
    heading, words = ' class="head"', ' class="text"' if table.words else ""
    head = "".join(
        f'<th scope="col"{heading if index < table.heads else ""}>{html.escape(column)}</th>'
        for index, column in enumerate(table.columns)
    )
    body = []
    for row in table.rows:
        cells = [_html_cell(c, index < table.heads) for index, c in enumerate(row)]
        block = ' class="block"' if table.heads > 1 and row[0].text else ""
        body.append(f"<tr{block}>{''.join(cells)}</tr>")
    label, caption = html.escape(table.title), html.escape(table.caption)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}, table">'
        f'<table id="table-{table.name}"{words} aria-label="{label}" aria-describedby="caption-{table.name}">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        f'<p class="caption" id="caption-{table.name}">{caption}</p>'
    )


def _html_cell(c: Cell, head: bool) -> str:
    text = html.escape(c.text)
    if head:
        return f'<th scope="row">{text}</th>' if c.text else "<td></td>"
    return f"<td><strong>{text}</strong></td>" if c.best else f"<td>{text}</td>"


def markdown(text: str) -> str:
    """Text that a Markdown reader shows and does not act on: no HTML, no link, no new cell or line."""
    plain = html.escape(" ".join(text.splitlines()), quote=False).replace("&gt;", ">")
    return plain.replace("\\", "\\\\").replace("|", "\\|").replace("](", "]\\(").replace("`", "\\`")


def latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def many(count: int, thing: str) -> str:
    """ "1 run", "4 runs"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def number(value: float, digits: int = 2) -> str:
    """A minus sign instead of a hyphen; "–" for what is not there."""
    if not math.isfinite(value):
        return "–"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")  # + 0.0 turns −0 into 0


def _csv_cell(value: Any) -> Any:
    """Text in one line; what a spreadsheet would take for a formula gets an apostrophe before it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if not isinstance(value, str):
        return value
    line = " ".join(value.splitlines())
    return f"'{line}" if _FORMULA.match(line) and not _NUMBER.fullmatch(line) else line
