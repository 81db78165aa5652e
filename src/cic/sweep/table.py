"""A sweep on the terminal: a live table, or a line now and then where there is no terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from cic.sweep.status import Row, total

_TABLE_SECONDS = 2.0
_LINE_SECONDS = 30.0


def table(parts: Sequence[Row]) -> Table:
    """A row per method and domain, and their sum."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("method", "domain"):
        made.add_column(name)
    for name in ("waiting", "running", "done", "failed", "steps/s", "left"):
        made.add_column(name, justify="right")
    for row in parts:
        made.add_row(*_cells(row))
    if len(parts) > 1:
        made.add_section()
        made.add_row(*_cells(total(parts)), style="bold")
    return made


def _cells(row: Row) -> list[str]:
    counts = [str(count or "-") for count in (row.waiting, row.running, row.done, row.failed)]
    return [row.method, row.domain, *counts, f"{row.rate:,.0f}" if row.rate else "-", duration(row.seconds_left)]


def line(parts: Sequence[Row]) -> str:
    whole = total(parts)
    count = whole.waiting + whole.running + whole.done + whole.failed
    return (
        f"{whole.done} of {count} runs done, {whole.running} running, {whole.failed} failed, "
        f"{whole.rate:,.0f} steps/s, {duration(whole.seconds_left)} left"
    )


def duration(seconds: float) -> str:
    """45 s, 12 min, 3.5 h, 9 days."""
    if not math.isfinite(seconds):
        return "?"
    for size, unit, digits in ((86400.0 * 2, "days", 86400.0), (5400.0, "h", 3600.0), (90.0, "min", 60.0)):
        if seconds >= size:
            value = seconds / digits
            return f"{value:.1f} {unit}" if value < 10 and unit != "min" else f"{value:,.0f} {unit}"
    return f"{seconds:.0f} s"


class View:
    """Shows what `look` sees, not more often than one can read."""

    def __init__(self, look: Callable[[], Sequence[Row]], quiet: bool = False) -> None:
        self._look, self._quiet = look, quiet
        console = Console(stderr=True)
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal and not quiet else None
        self._shown = time.monotonic() - _LINE_SECONDS + _TABLE_SECONDS

    def __enter__(self) -> View:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.show(last=True)
        if self._live:
            self._live.stop()

    def show(self, last: bool = False) -> None:
        now = time.monotonic()
        if self._quiet or (not last and now - self._shown < (_TABLE_SECONDS if self._live else _LINE_SECONDS)):
            return
        self._shown = now
        if self._live:
            self._live.update(table(self._look()), refresh=True)
        else:
            print(f"cic: {line(self._look())}", file=sys.stderr, flush=True)
