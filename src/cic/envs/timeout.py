"""A time limit for calls into environments that are not part of cic.

A thread watches the clock and sends a signal to the main thread, whose handler raises an error. Code that never returns
to Python, such as an endless loop in C, cannot be interrupted this way: then the process exits with a message.
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


def can_limit() -> bool:
    """Whether `Timeout` works here: signals exist, and this is the main thread."""
    return hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()


class Timeout:
    """`with timeout.limit(what):` raises a `UserError` after `seconds`; with 0 there is no limit and no cost."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._what, self._deadline = "", float("inf")
        self._closed = threading.Event()
        self._previous_handler: Any = None
        if not seconds:
            return
        if not hasattr(signal, "SIGALRM"):
            raise UserError("env_timeout needs signals that this system does not have: set it to 0")
        if threading.current_thread() is not threading.main_thread():
            raise UserError("`env_timeout` works in the main thread only: omit it, or train in the main thread")
        self._previous_handler = signal.signal(signal.SIGALRM, self._raise)
        threading.Thread(target=self._watch, name="env-timeout", daemon=True).start()

    @contextmanager
    def limit(self, what: str) -> Iterator[None]:
        if not self.seconds:
            yield
            return
        self._what, self._deadline = what, time.monotonic() + self.seconds
        try:
            yield
        finally:
            self._deadline = float("inf")

    def close(self) -> None:
        self._closed.set()
        if self._previous_handler is not None:
            signal.signal(signal.SIGALRM, self._previous_handler)
            self._previous_handler = None

    def _message(self) -> str:
        return f"{self._what} has not returned for {self.seconds:g} s (`env_timeout`)"

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self._deadline <= time.monotonic():  # else the call returned at the last moment
            raise UserError(self._message())

    def _watch(self) -> None:
        main = threading.main_thread().ident
        while not self._closed.wait(min(self.seconds / 10, 1.0)):
            late = time.monotonic() - self._deadline
            if late > _GRACE:
                print(f"cic: {self._message()} and cannot be interrupted", file=sys.stderr, flush=True)
                os._exit(2)
            if late >= 0 and main is not None:
                signal.pthread_kill(main, signal.SIGALRM)
