"""A sweep on the terminal: a live table, or a line now and then where there is no terminal."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
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
    """While entered, shows what `look` sees, not more often than one can read.

    From a thread, because a run may train in the main one; to the stream that was there at the beginning, because what
    a run says goes to its log.
    """

    def __init__(self, look: Callable[[], Sequence[Row]], quiet: bool = False) -> None:
        self._look, self._quiet, self._stream = look, quiet, sys.stderr
        console = Console(file=self._stream)
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="table", daemon=True)

    def __enter__(self) -> View:
        if not self._quiet:
            if self._live:
                self._live.start()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._quiet:
            self._end.set()
            self._thread.join()
            self._show()
            if self._live:
                self._live.stop()

    def _watch(self) -> None:
        while not self._end.wait(_TABLE_SECONDS if self._live else _LINE_SECONDS):
            with contextlib.suppress(OSError):  # the storage stumbles
                self._show()

    def _show(self) -> None:
        if self._live:
            self._live.update(table(self._look()), refresh=True)
        else:
            print(f"cic: {line(self._look())}", file=self._stream, flush=True)
