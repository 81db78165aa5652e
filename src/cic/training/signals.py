"""Ctrl-C that saves: a signal is a request to stop, which the loop grants between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_CAUGHT = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


class StopRequest:
    """While entered, SIGINT, SIGTERM and SIGHUP set `by`; a second one stops at once."""

    def __init__(self) -> None:
        self.by: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {number: signal.signal(number, self._ask) for number in _CAUGHT}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.by:
            raise KeyboardInterrupt
        self.by = signal.Signals(number).name
