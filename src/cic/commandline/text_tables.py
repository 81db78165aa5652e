"""Tables for a terminal: columns two spaces apart, wrapped or broken into blocks rather than run together."""

from __future__ import annotations

import shutil
import textwrap

_GAP = 2
_NARROWEST = 24


def show(header: list[str], rows: list[list[str]]) -> None:
    print(layout(header, rows, shutil.get_terminal_size().columns))


def layout(header: list[str], rows: list[list[str]], width: int) -> str:
    """The last column is wrapped if that is enough; otherwise columns continue below, beside the first one again."""
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    room = width - sum(widths[:-1]) - _GAP * (len(widths) - 1)
    if room >= min(_NARROWEST, widths[-1]):
        return _block([list(row) for row in zip(*columns, strict=True)], [*widths[:-1], min(widths[-1], room)])
    blocks, first = [], 1
    while first < len(columns):
        last, used = first, widths[0]
        while last < len(columns) and (last == first or used + _GAP + widths[last] <= width):
            used += _GAP + widths[last]
            last += 1
        chosen = [0, *range(first, last)]
        cells = [[column[row] for column in (columns[i] for i in chosen)] for row in range(len(rows) + 1)]
        blocks.append(_block(cells, [widths[i] for i in chosen]))
        first = last
    return "\n\n".join(blocks)


def _block(cells: list[list[str]], widths: list[int]) -> str:
    numeric = [all(_is_number(row[column]) for row in cells[1:]) for column in range(len(widths))]
    lines = []
    for row in cells:
        last = textwrap.wrap(row[-1], widths[-1]) or [""]
        for index, part in enumerate(last):
            texts = [*(row[:-1] if index == 0 else [""] * (len(row) - 1)), part]
            padded = [
                f"{text:>{size}}" if right else f"{text:<{size}}"
                for text, size, right in zip(texts, widths, numeric, strict=True)
            ]
            lines.append((" " * _GAP).join(padded).rstrip())
    return "\n".join(lines)


def _is_number(text: str) -> bool:
    return text == "-" or text.lstrip("-").replace(".", "").replace(",", "").replace("e", "").replace("+", "").isdigit()
