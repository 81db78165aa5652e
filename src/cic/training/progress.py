"""A live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)


class _Console(Console):
    """rich ends the program when nobody reads it; here that is an error like others."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Reporter:
    """Shows steps, steps/s, time left and the latest numbers of one run."""

    def __init__(self, title: str, total: int, start: int, quiet: bool = False) -> None:
        self.title, self.total, self.step, self.quiet = title, total, start, quiet
        self._console = _Console(stderr=True)
        self._live = self._console.is_terminal and not quiet
        self._first, self._began, self._shown = start, time.monotonic(), 0.0
        self._notes: dict[str, float] = {}
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}/s"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[notes]}"),
            console=self._console,
            refresh_per_second=2,
        )

    def __enter__(self) -> Reporter:
        if self._live:
            self._task = self._bar.add_task(self.title, total=self.total, completed=self.step, rate="-", notes="")
            with self._while_somebody_listens():
                self._bar.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            with self._while_somebody_listens():
                self._bar.stop()

    @property
    def rate(self) -> float:
        return (self.step - self._first) / max(time.monotonic() - self._began, 1e-9)

    def advance(self, step: int) -> None:
        self.step = step
        now = time.monotonic()
        if self._live and now - self._shown > 0.5:
            self._shown = now
            with self._while_somebody_listens():
                self._bar.update(self._task, completed=step, rate=f"{self.rate:,.0f}", notes=self._text())

    def note(self, step: int, **numbers: float) -> None:
        """The values logged at a step; on a plain output, also the moment to print a line."""
        self._notes |= numbers
        self.step = step
        if not self._live and not self.quiet:
            line = f"{self.title}  step {step:,}/{self.total:,}"
            if self.rate > 0 and step < self.total:
                line += f"  {self.rate:,.0f} steps/s  {(self.total - step) / self.rate / 60:.1f} min left"
            self._print(f"{line}  {self._text()}")

    def say(self, line: str) -> None:
        """A line for the reader, above the bar."""
        if not self.quiet:
            with self._while_somebody_listens():
                self._console.print(f"{self.title}  {line}", highlight=False, soft_wrap=True)

    def _print(self, line: str) -> None:
        with self._while_somebody_listens():
            print(line, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def _while_somebody_listens(self) -> Iterator[None]:
        """A log pipe or a terminal that goes away must not take the run with it."""
        try:
            yield
        except OSError:
            self.quiet, self._live = True, False

    def _text(self) -> str:
        return "  ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in self._notes.items())


class Stages:
    """Signs of life in a command of several stages: `with stages("films", 900) as tick:`, a `tick()` for each of them.

    A bar on a terminal, gone when the stage is over; a line per stage elsewhere.
    """

    def __init__(self, command: str, quiet: bool = False) -> None:
        self.command, self.quiet = command, quiet
        self._console = _Console(stderr=True)

    @contextlib.contextmanager
    def __call__(self, stage: str, total: int | None = None) -> Iterator[Callable[..., object]]:
        if self.quiet or not self._console.is_terminal:
            with contextlib.suppress(OSError):
                if not self.quiet:
                    print(f"{self.command}: {stage} …", file=sys.stderr, flush=True)
            yield lambda *_: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(24), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console, transient=True, refresh_per_second=4) as bar:
            task = bar.add_task(stage, total=total)
            yield lambda *_: bar.advance(task)
