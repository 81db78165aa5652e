"""Where runs are done without Ray: in this process, one after another."""

from __future__ import annotations

import time

from cic.sweep.jobs import Job
from cic.sweep.scheduler import Outcome
from cic.sweep.work import Orders, Train, execute


class SerialPool:
    """One run at a time. Ctrl-C reaches the run itself, which saves and stops."""

    def __init__(self, orders: Orders, train: Train | None = None) -> None:
        self.orders, self.train = orders, train
        self.stopped = False
        self._next: Job | None = None

    def has_room(self, running: int) -> bool:
        return self._next is None and not self.stopped

    def submit(self, job: Job) -> None:
        self._next = job

    def wait(self, seconds: float) -> list[tuple[str, Outcome]]:
        if self._next is None:
            time.sleep(seconds)
            return []
        job, self._next = self._next, None
        outcome = execute(job, self.orders, self.train)
        self.stopped = outcome.word == "stopped"
        return [(job.folder, outcome)]

    def stop(self) -> list[tuple[str, Outcome]]:
        return []

    def close(self) -> None:
        pass
