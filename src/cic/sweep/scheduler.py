"""Which run is next. Bookkeeping alone: time is an argument, and where runs are done is the pool's business."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from cic.sweep.jobs import Job

Word = Literal["done", "failed", "lost", "held", "stopped"]
State = Literal["waiting", "running", "done", "failed", "blocked"]


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a run ended."""

    word: Word
    """`lost`: its worker died. `held`: another sweep has it. `stopped`: saved on request."""
    message: str = ""
    log: str = ""
    """The last lines of the log of a run that failed."""


class Pool(Protocol):
    """Where runs are done."""

    stopped: bool
    """A run was stopped, and with it the sweep."""

    def has_room(self, running: int) -> bool: ...

    def submit(self, job: Job) -> None: ...

    def wait(self, seconds: float) -> list[tuple[str, Outcome]]:
        """Folders of the runs that ended, after at most `seconds` if none does."""

    def stop(self) -> list[tuple[str, Outcome]]:
        """Ask every run to save and stop; what came of it."""

    def close(self) -> None: ...


class Scheduler:
    """States of all runs. The run with the most work behind it goes first, so that no chain is left for the end."""

    def __init__(
        self,
        jobs: Sequence[Job],
        done: Iterable[str] = (),
        retries: int = 3,
        pause: float = 5.0,
        cost: Callable[[Job], float] = lambda job: float(job.steps),
    ) -> None:
        self.jobs = {job.folder: job for job in jobs}
        self.retries, self.pause = retries, pause
        self.states: dict[str, State] = dict.fromkeys(self.jobs, "waiting")
        self.outcomes: dict[str, Outcome] = {}
        self.attempts = dict.fromkeys(self.jobs, 0)
        self.running: set[str] = set()
        self.elsewhere: set[str] = set()
        """Runs that another sweep is at."""
        self._open = len(self.jobs)
        self._followers: dict[str, list[str]] = {folder: [] for folder in self.jobs}
        self._missing = {folder: len(set(job.after)) for folder, job in self.jobs.items()}
        for folder, job in self.jobs.items():
            for other in set(job.after):
                self._followers[other].append(folder)
        self.rank: dict[str, float] = {}
        """The longest chain of work that begins with a run."""
        for folder, job in reversed(self.jobs.items()):
            behind = (self.rank[follower] for follower in self._followers[folder])
            self.rank[folder] = cost(job) + max(behind, default=0.0)
        self._ready: list[tuple[float, int, str]] = []
        self._later: list[tuple[float, str]] = []
        self._order = {folder: index for index, folder in enumerate(self.jobs)}
        for folder in self.jobs:
            self._offer(folder)
        for folder in set(done) & self.jobs.keys():
            self._finish(folder)

    @property
    def finished(self) -> bool:
        return self._open == 0

    def take(self, now: float) -> Job | None:
        """The next run, which counts as running from now on; None if there is none at the moment."""
        while self._later and self._later[0][0] <= now:
            self._offer(heapq.heappop(self._later)[1])
        while self._ready:
            folder = heapq.heappop(self._ready)[2]
            if self.states[folder] == "waiting":
                self.states[folder] = "running"
                self.running.add(folder)
                return self.jobs[folder]
        return None

    def ended(self, folder: str, outcome: Outcome, now: float) -> None:
        self.running.discard(folder)
        self.outcomes[folder] = outcome
        self.elsewhere.discard(folder)
        if outcome.word == "done":
            self._finish(folder)
        elif outcome.word == "failed":
            self._fail(folder)
        elif outcome.word == "stopped":
            self.states[folder] = "waiting"
        elif outcome.word == "lost" and self.attempts[folder] >= self.retries:
            self.outcomes[folder] = Outcome("failed", f"its worker died {self.retries + 1} times: {outcome.message}")
            self._fail(folder)
        else:
            self.attempts[folder] += outcome.word == "lost"
            if outcome.word == "held":
                self.elsewhere.add(folder)
            self.states[folder] = "waiting"
            heapq.heappush(self._later, (now + self.pause, folder))

    def _offer(self, folder: str) -> None:
        if self.states[folder] == "waiting" and self._missing[folder] == 0:
            heapq.heappush(self._ready, (-self.rank[folder], self._order[folder], folder))

    def _finish(self, folder: str) -> None:
        if self.states[folder] == "done":
            return
        self.states[folder] = "done"
        self._open -= 1
        for follower in self._followers[folder]:
            self._missing[follower] -= 1
            self._offer(follower)

    def _fail(self, folder: str) -> None:
        self.states[folder] = "failed"
        self._open -= 1
        blocked = list(self._followers[folder])
        while blocked:
            follower = blocked.pop()
            if self.states[follower] == "waiting":
                self.states[follower] = "blocked"
                self._open -= 1
                blocked += self._followers[follower]


def drive(scheduler: Scheduler, pool: Pool, clock: Callable[[], float] = time.monotonic) -> None:
    """Until everything is done, failed or blocked, or a signal has stopped a run."""
    while not scheduler.finished and not pool.stopped:
        while pool.has_room(len(scheduler.running)) and (job := scheduler.take(clock())):
            pool.submit(job)
        for folder, outcome in pool.wait(1.0):
            scheduler.ended(folder, outcome, clock())
