"""A sweep without its runs: the same scheduler on workers that only take time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cic.sweep.jobs import Job
from cic.sweep.scheduler import Outcome, Scheduler, drive


@dataclass(frozen=True)
class Simulated:
    """What a sweep would take."""

    seconds: float
    busy: float
    """Seconds of work, over all workers."""
    workers: int

    @property
    def idle(self) -> float:
        """The share of the workers' time in which they had nothing to do."""
        return 1 - self.busy / (self.workers * self.seconds) if self.seconds else 0.0


class SimulatedPool:
    """Workers whose runs take as long as `duration` says and end as `outcome` says."""

    stopped = False

    def __init__(
        self,
        workers: int,
        duration: Callable[[Job], float],
        outcome: Callable[[Job], Outcome] = lambda job: Outcome("done"),
    ) -> None:
        self.workers, self.duration, self.outcome = workers, duration, outcome
        self.now = self.busy = 0.0
        self._ends: list[tuple[float, int, Job]] = []
        self._count = 0

    def has_room(self, running: int) -> bool:
        return running < self.workers

    def submit(self, job: Job) -> None:
        seconds = self.duration(job)
        self.busy += seconds
        self._count += 1
        heapq.heappush(self._ends, (self.now + seconds, self._count, job))

    def wait(self, seconds: float) -> list[tuple[str, Outcome]]:
        if not self._ends:
            self.now += seconds
            return []
        self.now = self._ends[0][0]
        ended = []
        while self._ends and self._ends[0][0] <= self.now:
            job = heapq.heappop(self._ends)[2]
            ended.append((job.folder, self.outcome(job)))
        return ended

    def stop(self) -> list[tuple[str, Outcome]]:
        return []

    def close(self) -> None:
        pass


def simulate(jobs: Sequence[Job], duration: Callable[[Job], float], workers: int) -> Simulated:
    """All of a plan, from nothing, on so many workers."""
    pool = SimulatedPool(workers, duration)
    drive(Scheduler(jobs, cost=duration), pool, clock=lambda: pool.now)
    return Simulated(pool.now, pool.busy, workers)


def critical_path(jobs: Sequence[Job], duration: Callable[[Job], float]) -> list[Job]:
    """The chain of runs that takes the longest: no number of workers makes a sweep quicker."""
    scheduler = Scheduler(jobs, cost=duration)
    path: list[Job] = []
    left = [job for job in jobs if not job.after]
    while left:
        path.append(max(left, key=lambda job: scheduler.rank[job.folder]))
        left = [job for job in jobs if path[-1].folder in job.after]
    return path
