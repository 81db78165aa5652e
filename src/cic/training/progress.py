"""Progress on the terminal: a live bar, or plain lines where the output is not a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

WINDOW = 30.0
"""Seconds over which the speed is averaged."""
_INTERVAL = 0.5
"""Seconds between two updates of the bar and of the speed."""


class _Console(Console):
    """rich ends the program when its reader closes the pipe; here that is an error like others."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Speed:
    """Steps per second over the last `WINDOW` seconds."""

    def __init__(self, step: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.restart(step)

    def restart(self, step: int) -> None:
        """Discard earlier measurements, such as the compilation during the first update."""
        self._step = step
        self._samples = deque([(self._clock(), step)])

    def advance(self, step: int) -> None:
        self._step, now = step, self._clock()
        if now - self._samples[-1][0] >= _INTERVAL:
            self._samples.append((now, step))
        while len(self._samples) > 1 and now - self._samples[1][0] >= WINDOW:
            self._samples.popleft()

    @property
    def rate(self) -> float:
        """0 if nothing was measured yet."""
        began, first = self._samples[0]
        return (self._step - first) / max(self._clock() - began, 1e-9)


class Reporter:
    """Shows the step, the speed, the time left and the latest metrics of one run."""

    def __init__(
        self,
        title: str,
        total: int,
        start: int,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.title, self.total, self.step, self.quiet = title, total, start, quiet
        self._console = _Console(stderr=True)
        self._live = self._console.is_terminal and not quiet
        self._clock, self._shown = clock, float("-inf")
        self._speed = Speed(start, clock)
        self._metrics: dict[str, float] = {}
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TextColumn("{task.fields[metrics]}"),
            console=self._console,
            refresh_per_second=2,
        )

    def __enter__(self) -> Reporter:
        if self._live:
            self._task = self._bar.add_task(self.title, total=self.total, completed=self.step, speed="", metrics="")
            with self._quiet_without_reader():
                self._bar.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            with self._quiet_without_reader():
                self._bar.stop()

    @property
    def rate(self) -> float:
        """Steps per second, over the last half minute."""
        return self._speed.rate

    def restart_clock(self) -> None:
        """Measure the speed from now on. Call it after the first update, which may include a compilation."""
        self._speed.restart(self.step)

    def advance(self, step: int) -> None:
        """Call it after every step."""
        self.step = step
        self._speed.advance(step)
        if self._live and self._clock() - self._shown > _INTERVAL:
            self._shown = self._clock()
            with self._quiet_without_reader():
                self._bar.update(self._task, completed=step, speed=self._speed_text(), metrics=self._metrics_text())

    def note(self, step: int, **metrics: float) -> None:
        """Show the metrics that were logged at a step. Where there is no bar, print a line."""
        self._metrics |= metrics
        self.step = step
        self._speed.advance(step)
        if not self._live and not self.quiet:
            parts = [f"{self.title}  step {step:,}/{self.total:,}", self._speed_text(), self._metrics_text()]
            with self._quiet_without_reader():
                print("  ".join(filter(None, parts)), file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if not self.quiet:
            with self._quiet_without_reader():
                self._console.print(f"{self.title}  {line}", highlight=False, soft_wrap=True)

    @contextlib.contextmanager
    def _quiet_without_reader(self) -> Iterator[None]:
        """A closed log pipe or terminal must not end the run."""
        try:
            yield
        except OSError:
            self.quiet, self._live = True, False

    def _speed_text(self) -> str:
        rate = self.rate
        if rate <= 0 or self.step >= self.total:
            return ""
        return f"{rate:,.0f} steps/s  {(self.total - self.step) / rate / 60:.1f} min left"

    def _metrics_text(self) -> str:
        return "  ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in self._metrics.items())


class Stages:
    """The progress of a command with several stages: `with stages("films", 900) as tick:`, then `tick()` 900 times.

    On a terminal it is a bar that disappears when the stage is over; elsewhere a line per stage.
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
