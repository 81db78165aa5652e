"""Signals as requests to stop: the loop saves and stops between two steps."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

_CAUGHT = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
_NOTICE_AFTER = 2.0


class StopRequest:
    """While entered, SIGINT, SIGTERM and SIGHUP set `by`. A second signal stops at once, a third by its default effect.

    If the current step takes longer than a few seconds, a line explains the delay.
    """

    def __init__(self) -> None:
        self.by: str | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._exited = threading.Event()

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers only there
            self._before = {number: signal.signal(number, self._ask) for number in _CAUGHT}
            threading.Thread(target=self._watch, name="stop-request", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._exited.set()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.by:
            for caught in _CAUGHT:  # code that catches the exception must not prevent the end
                signal.signal(caught, signal.SIG_DFL)
            raise KeyboardInterrupt
        self.by = signal.Signals(number).name

    def _watch(self) -> None:
        """Runs in a thread: a signal handler that prints could wait for a lock that it interrupted."""
        noticed = False
        while not self._exited.wait(_NOTICE_AFTER):
            if self.by and noticed:
                print(
                    f"cic: {self.by}: waiting for the current step, then saving; a second signal stops at once and "
                    "loses everything after the last checkpoint",
                    file=sys.stderr,
                    flush=True,
                )
                return
            noticed = self.by is not None
