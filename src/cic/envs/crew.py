"""A few threads that do the same job for many items: MuJoCo releases the GIL, so threads use every core.

Items are handed out one by one, since copies in contact take longer than copies in the air. The calling thread works
too. A condition per worker would cost two wake-ups; a pair of bare locks costs one.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Crew:
    """Runs `job(i)` for i below `items` on several threads."""

    def __init__(self, job: Callable[[int], None], items: int, threads: int) -> None:
        self._job, self._items = job, items
        self._workers = [_Worker(self._drain_from) for _ in range(min(threads, items) - 1)]

    def run(self) -> None:
        """Do all items; the first failure of any thread is raised here, after all of them stopped."""
        if not self._workers:
            for i in range(self._items):
                self._job(i)
            return
        queue = itertools.count()  # next() on it is atomic
        for worker in self._workers:
            worker.start(queue)
        error: BaseException | None = None
        try:
            self._drain_from(queue)
        except BaseException as e:
            error = e
        for worker in self._workers:
            error = worker.wait() or error
        if error is not None:
            raise error

    def _drain_from(self, queue: Iterator[int]) -> None:
        job, items = self._job, self._items
        while (i := next(queue)) < items:
            job(i)

    def close(self) -> None:
        """End the threads."""
        for worker in self._workers:
            worker.end()
        self._workers = []


class _Worker:
    """One thread, woken by one lock and answering with another."""

    def __init__(self, work: Callable[[Iterator[int]], None]) -> None:
        self._go, self._done = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._queue: Iterator[int] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, args=(work,), name="cic-envs", daemon=True)
        self._thread.start()

    def _loop(self, work: Callable[[Iterator[int]], None]) -> None:
        while True:
            self._go.acquire()
            if self._queue is None:
                return
            try:
                work(self._queue)
            except BaseException as error:
                self._error = error
            self._done.release()

    def start(self, queue: Iterator[int]) -> None:
        self._queue = queue
        self._go.release()

    def wait(self) -> BaseException | None:
        self._done.acquire()
        error, self._error = self._error, None
        return error

    def end(self) -> None:
        self._queue = None
        self._go.release()
        self._thread.join()
