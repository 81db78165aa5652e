"""Ctrl-C that saves: a signal is a request to stop, which the loop grants between two steps."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

_CAUGHT = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
_PATIENCE = 2.0


class StopRequest:
    """While entered, SIGINT, SIGTERM and SIGHUP set `by`; a second one stops at once, a third as if nobody listened.

    If the step at hand takes longer than a moment, a line says what is waited for.
    """

    def __init__(self) -> None:
        self.by: str | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._over = threading.Event()

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {number: signal.signal(number, self._ask) for number in _CAUGHT}
            threading.Thread(target=self._watch, name="stop-request", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._over.set()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.by:
            for caught in _CAUGHT:  # whoever swallows the exception is not asked again
                signal.signal(caught, signal.SIG_DFL)
            raise KeyboardInterrupt
        self.by = signal.Signals(number).name

    def _watch(self) -> None:
        """In a thread of its own: a handler that took a lock could wait for itself."""
        asked = False
        while not self._over.wait(_PATIENCE):
            if self.by and asked:
                print(
                    f"cic: {self.by}: waiting for the step at hand, then saving; a second signal stops at once and "
                    "loses what came after the last checkpoint",
                    file=sys.stderr,
                    flush=True,
                )
                return
            asked = self.by is not None
