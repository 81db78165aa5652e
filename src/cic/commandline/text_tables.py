"""Tables in the terminal, by rich."""

from __future__ import annotations

from collections.abc import Sequence

from cic.commandline.flags import is_number


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns two spaces apart, numbers to the right.

    Cells are wrapped between words to fit the terminal. A table whose words do not fit is printed wider.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    for title, *cells in zip(header, *rows, strict=True):
        numeric = all(cell == "-" or is_number(cell) for cell in cells)
        table.add_column(Text(title), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    unlimited = console.options.update(max_width=10_000)
    console.width = max(console.width, console.measure(table, options=unlimited).minimum)
    with console.capture() as capture:
        console.print(table)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))
