"""Progress of a sweep on the terminal: a live table, or a line per finished run."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from cic.sweep.status import GroupProgress, total


def progress_table(groups: Sequence[GroupProgress]) -> Table:
    """Return a table with a row per method and domain, and their sum."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("method", "domain"):
        made.add_column(name)
    for name in ("waiting", "running", "done", "failed", "steps/s", "left"):
        made.add_column(name, justify="right")
    for one in groups:
        made.add_row(*_cells(one))
    if len(groups) > 1:
        made.add_section()
        made.add_row(*_cells(total(groups)), style="bold")
    return made


def _cells(one: GroupProgress) -> list[str]:
    counts = [str(count or "-") for count in (one.waiting, one.running, one.done, one.failed)]
    return [one.method, one.domain, *counts, f"{one.rate:,.0f}" if one.rate else "-", duration(one.seconds_left)]


def progress_line(groups: Sequence[GroupProgress]) -> str:
    whole = total(groups)
    count = whole.waiting + whole.running + whole.done + whole.failed
    return (
        f"{whole.done} of {count} runs done, {whole.running} running, {whole.failed} failed, "
        f"{whole.rate:,.0f} steps/s, {duration(whole.seconds_left)} left"
    )


def duration(seconds: float) -> str:
    """Format a time: 45 s, 12 min, 3.5 h, 9 days."""
    if not math.isfinite(seconds):
        return "?"
    for least, unit, size in ((86400.0 * 2, "days", 86400.0), (5400.0, "h", 3600.0), (90.0, "min", 60.0)):
        if seconds >= least:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 and unit != "min" else f"{value:,.0f} {unit}"
    return f"{seconds:.0f} s"


@contextlib.contextmanager
def show_progress(read: Callable[[], Sequence[GroupProgress]], quiet: bool = False) -> Iterator[Callable[[], None]]:
    """Show the progress while entered. Yields a function to call after each run.

    The output of runs is redirected to their logs, so the progress is written to the stderr of now.
    """
    stream = sys.stderr
    console = Console(file=stream)

    def table() -> Table:
        with contextlib.suppress(Exception):  # the store fails for a moment
            return progress_table(read())
        return Table()

    def print_line() -> None:
        with contextlib.suppress(Exception):
            print(f"cic: {progress_line(read())}", file=stream, flush=True)

    if quiet:
        yield lambda: None
    elif console.is_terminal:
        with Live(
            console=console, get_renderable=table, refresh_per_second=0.5, redirect_stdout=False, redirect_stderr=False
        ):
            yield lambda: None
    else:
        yield print_line
