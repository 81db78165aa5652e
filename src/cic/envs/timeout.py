"""How long to wait for somebody else's code: a step that does not come back ends, with a sentence.

A thread watches the clock and wakes the main thread by a signal, whose handler raises. Code that does not even return
to Python, such as an endless loop in C, cannot be stopped that way: the process then ends, after saying why.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from cic.core.errors import UserError

_GRACE = 5.0
"""Seconds between the signal and the end of the process."""


class Patience:
    """`with patience.for_(what):` raises after `seconds`; with 0 it waits for ever and costs nothing."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._what, self._deadline = "", float("inf")
        self._over = threading.Event()
        self._before: Any = None
        if not seconds:
            return
        if threading.current_thread() is not threading.main_thread():
            raise UserError("--env-timeout works in the main thread only: drop it, or train there")
        self._before = signal.signal(signal.SIGALRM, self._raise)
        threading.Thread(target=self._watch, name="env-timeout", daemon=True).start()

    @contextmanager
    def for_(self, what: str) -> Iterator[None]:
        if not self.seconds:
            yield
            return
        self._what, self._deadline = what, time.monotonic() + self.seconds
        try:
            yield
        finally:
            self._deadline = float("inf")

    def close(self) -> None:
        self._over.set()
        if self._before is not None:
            signal.signal(signal.SIGALRM, self._before)
            self._before = None

    def _message(self) -> str:
        return f"{self._what} has not come back for {self.seconds:g} s (--env-timeout)"

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self._deadline <= time.monotonic():  # else it came back at the last moment
            raise UserError(self._message())

    def _watch(self) -> None:
        main = threading.main_thread().ident
        while not self._over.wait(min(self.seconds / 10, 1.0)):
            late = time.monotonic() - self._deadline
            if late > _GRACE:
                print(f"cic: {self._message()} and cannot be interrupted", file=sys.stderr, flush=True)
                os._exit(2)
            if late >= 0 and main is not None:
                signal.pthread_kill(main, signal.SIGALRM)
