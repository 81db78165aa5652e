"""What a sweep costs beside its runs: `python -m benchmarks.sweeps [empty|pair|large]`."""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cic.runs.storage import write_json
from cic.sweep.completion import make_jobs
from cic.sweep.grid import Grid
from cic.sweep.jobs import Job, write_jobs
from cic.sweep.leases import Lease, take
from cic.sweep.plan import plan_from_text
from cic.sweep.run import Means, run_plan
from cic.sweep.scheduler import Outcome, Scheduler, drive
from cic.sweep.simulation import SimulatedPool
from cic.sweep.status import read_status, rows, total
from cic.sweep.storage import FolderStorage


def train_nothing(job: Job, path: Path, source: Path | None) -> None:
    """A run that is over at once; the first of a worker imports what every run needs."""
    import cic.api  # noqa: F401  torch

    write_json(path / "result.json", {})


def empty(count: int = 200, slots: int = 2) -> float:
    """Milliseconds per empty run, from the first to the last, without the start of Ray."""
    plan = Grid(("cic",), ("gridworld",), tuple(range(count)), "smoke").plan()
    with tempfile.TemporaryDirectory() as scratch:
        run_plan(plan, scratch, Means(slots=slots, quiet=True), train=train_nothing)
        ends = sorted(path.stat().st_mtime for path in Path(scratch).glob("*/result.json"))
    settled = ends[2 * slots :]  # every worker has imported by then
    return 1000 * (settled[-1] - settled[0]) / (len(settled) - 1)


def pair(steps: int = 6_000) -> tuple[float, float]:
    """Steps per second of one run alone and of two side by side, each in its own process, by their own clocks."""
    rates = []
    for count in (1, 2):
        plan = Grid(("cic",), ("walker",), tuple(range(count)), "smoke", settings=(f"steps={steps}",)).plan()
        with tempfile.TemporaryDirectory() as scratch:
            run_plan(plan, scratch, Means(slots=2, quiet=True))
            lines = [path.read_text().splitlines()[-1] for path in Path(scratch).glob("*/timing.jsonl")]
        rates.append(sum(float(line.split('"time/steps_per_second": ')[1].split(",")[0]) for line in lines))
    return rates[0], rates[1]


@dataclass(frozen=True)
class Large:
    runs: int
    workers: int
    seconds: float
    megabytes: float
    idle: float


class LeasingPool(SimulatedPool):
    """Simulated workers that take and free real leases and leave real files, under the simulation's clock."""

    def __init__(self, storage: FolderStorage, workers: int, duration: Callable[[Job], float]) -> None:
        super().__init__(workers, duration, self._end)
        self.storage, self.leases = storage, dict[str, Lease]()

    def submit(self, job: Job) -> None:
        lease = take(self.storage, job.folder, "benchmark", seconds=1e9, clock=lambda: self.now)
        assert lease is not None, "two workers at one run"
        self.leases[job.folder] = lease
        super().submit(job)

    def _end(self, job: Job) -> Outcome:
        lease = self.leases.pop(job.folder)
        assert lease.renew()
        self.storage.write(f"{job.folder}/result.json", b"{}")
        lease.release()
        return Outcome("done")


def large(count: int = 10_000, workers: int = 512) -> Large:
    """A plan of pre-trainings with four finetunings each, from its text to its last status."""
    began = time.monotonic()
    text = Grid(("cic",), ("walker",), tuple(range(count // 5)), "paper", ("walker",)).plan().to_text()
    jobs = make_jobs(plan_from_text(text))
    rng = random.Random(0)
    # By their steps, as the scheduler expects it, but no two nodes are equally fast.
    times = {job.folder: job.steps / 100 * rng.lognormvariate(0, 0.1) for job in jobs}
    with tempfile.TemporaryDirectory() as scratch:
        storage = FolderStorage(Path(scratch))
        write_jobs(storage, jobs)
        pool = LeasingPool(storage, workers, lambda job: times[job.folder])
        drive(Scheduler(jobs), pool, clock=lambda: pool.now)
        whole = total(rows(read_status(storage)))
        seconds = time.monotonic() - began
    assert whole.done == len(jobs)
    idle = 1 - pool.busy / (workers * pool.now)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Large(len(jobs), workers, seconds, memory, idle)


def main(names: list[str]) -> None:
    if not names or "large" in names:
        print(large())
    if not names or "empty" in names:
        print(f"{empty():.1f} ms per empty run, two at once")
    if not names or "pair" in names:
        one, two = pair()
        print(f"one run {one:.0f} steps/s, two side by side {two:.0f} steps/s: {two / one:.2f}×")


if __name__ == "__main__":
    main(sys.argv[1:])
