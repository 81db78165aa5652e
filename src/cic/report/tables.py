"""Tables as CSV, Markdown, LaTeX and HTML, and the text of their cells."""

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
} | {letter: f"\\{letter}" for letter in "&%$#_{}"}


class Best(str):
    """The text of a cell that is shown in bold."""

    best = True


@dataclass(frozen=True)
class Table:
    """Rows of text in fixed columns. A row whose first cell is empty belongs to the block above it."""

    name: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    heads: int = 1
    """Number of leading columns that identify the row."""
    words: bool = False
    """Whether cells are text: left-aligned, with a wrapped last column."""
    records: Sequence[Mapping[str, Any]] = field(default=())
    """The same content as data, one dict per number; written as CSV."""


def write(table: Table, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, text in (("csv", to_csv(table)), ("md", to_markdown(table)), ("tex", to_latex(table))):
        path = folder / f"{table.name}.{suffix}"
        path.write_text(text, encoding="utf-8", errors="replace")
        written.append(path)
    return written


def to_csv(table: Table) -> str:
    """Return the records with full precision; a missing number is an empty field."""
    if not table.records:
        return ""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(table.records[0]), lineterminator="\n")
    writer.writeheader()
    for record in table.records:
        writer.writerow({key: csv_cell(value) for key, value in record.items()})
    return buffer.getvalue()


def to_markdown(table: Table) -> str:
    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(texts) + " |"

    align = ["---" if index < table.heads else "---:" for index in range(len(table.columns))]
    body = [
        line([f"**{markdown(cell)}**" if isinstance(cell, Best) else markdown(cell) for cell in row])
        for row in table.rows
    ]
    head = line([markdown(column) for column in table.columns])
    return "\n".join([head, line(align), *body, "", markdown(table.caption), ""])


def to_latex(table: Table) -> str:
    """Return a `table` environment; it needs \\usepackage{booktabs,graphicx}."""
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
        if index and table.heads > 1 and row[0]:
            lines.append(r"\midrule")
        lines.append(" & ".join(rf"\textbf{{{latex(c)}}}" if isinstance(c, Best) else latex(c) for c in row) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}}", rf"\caption{{{latex(table.caption)}}}", rf"\label{{tab:{table.name}}}"]
    return "\n".join([*lines, r"\end{table}", ""])


def markdown(text: str) -> str:
    """Escape HTML, links, cell separators and line breaks."""
    plain = html.escape(" ".join(text.splitlines()), quote=False).replace("&gt;", ">")
    return plain.replace("\\", "\\\\").replace("|", "\\|").replace("](", "]\\(").replace("`", "\\`")


def latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def csv_cell(value: Any) -> Any:
    """Put text on one line; an apostrophe keeps a spreadsheet from reading it as a formula."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if not isinstance(value, str):
        return value
    line = " ".join(value.splitlines())
    return f"'{line}" if _FORMULA.match(line) and not _NUMBER.fullmatch(line) else line


# ---- text of cells ---------------------------------------------------------------------------------------------------


def number(value: float, digits: int = 2) -> str:
    """Format with a minus sign instead of a hyphen; a missing number is "–"."""
    if not math.isfinite(value):
        return "–"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")  # + 0.0 turns −0 into 0


def interval(estimate: tuple[float, float, float], digits: int = 2) -> str:
    """Format an estimate as "0.50 [0.45, 0.55]"; without the interval where there is none."""
    value, low, high = (number(part, digits) for part in estimate)
    return f"{value} [{low}, {high}]" if math.isfinite(estimate[1]) else value


def plus_minus(mean: float, error: float) -> str:
    """Format "312 ± 20"; a single run has no error."""
    digits = 0 if abs(mean) >= 10 else 2
    return number(mean, digits) + (f" ± {number(error, digits)}" if math.isfinite(error) else "")


def count(number: float) -> str:
    """100000 → "100k"."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{letter}"
    return f"{number:.4g}"


def many(count: int, thing: str) -> str:
    """Return "1 run" or "4 runs"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def words(name: str) -> str:
    """reach_top_left → Reach top left; an ID of another library stays unchanged."""
    return name if ":" in name else name.replace("_", " ").capitalize()
