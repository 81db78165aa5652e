"""Running a plan: what is missing, where it can be done, until it is done."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import FrameType

from cic.core.errors import Interrupted, UserError
from cic.sweep.jobs import Job, digest, write_jobs
from cic.sweep.leases import SECONDS
from cic.sweep.plan import Plan
from cic.sweep.pools import SerialPool
from cic.sweep.scheduler import Outcome, Pool, Scheduler, drive
from cic.sweep.status import Progress, Row, read_running, rows
from cic.sweep.storage import SWEEP, Storage, open_storage
from cic.sweep.table import View
from cic.sweep.work import Orders, Train

_SIGNALS = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


@dataclass(frozen=True)
class Means:
    """With what a plan is run."""

    address: str | None = None
    slots: int | None = None
    lease: float = SECONDS
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.slots is not None and self.slots < 1:
            raise UserError(f"slots must be at least 1, not {self.slots}")
        if not self.lease >= 1:
            raise UserError(f"a lease must last a second or more, not {self.lease}")


@dataclass(frozen=True)
class Swept:
    """How a sweep ended."""

    done: list[Job]
    failed: list[tuple[Job, Outcome]]
    blocked: list[Job]
    """Never begun, because a run before them failed."""

    def summary(self, where: str) -> str:
        count = len(self.done) + len(self.failed) + len(self.blocked)
        lines = [f"{len(self.done)} of {count} runs done, {len(self.failed)} failed: {where}"]
        for job, outcome in self.failed:
            lines.append(f"failed: {job.name} ({where}/{job.folder}): {outcome.message}")
            lines += [f"    {line}" for line in outcome.log.splitlines()]
        if self.blocked:
            lines.append(f"not begun, because a run before them failed: {', '.join(job.name for job in self.blocked)}")
        return "\n".join(lines)


def run_plan(
    plan: Plan, out: str, means: Means, jobs: Sequence[Job] | None = None, train: Train | None = None
) -> Swept:
    """Do what is missing of a plan. Stopped or killed, the same call goes on where it was."""
    from cic.sweep.completion import make_jobs

    jobs = make_jobs(plan) if jobs is None else jobs
    if not jobs:
        raise UserError("the plan has no runs")
    storage = open_storage(out)
    token = secrets.token_hex(4)
    marker = f"{SWEEP}/.seen-{token}"
    owner = f"{socket.gethostname()} {token}"
    orders = Orders(storage.where, marker, owner, means.lease, tuple(sys.argv))
    _begin(storage, marker, plan, jobs)
    try:
        return _run(storage, jobs, orders, means, train)
    finally:
        storage.remove(marker)


def _begin(storage: Storage, marker: str, plan: Plan, jobs: Sequence[Job]) -> None:
    """Before anything is started: a sweep that cannot keep its results is no use."""
    try:
        storage.write(marker, b"")
        storage.write(f"{SWEEP}/plan-{digest(jobs)}.json", plan.to_text().encode())
        write_jobs(storage, jobs)
    except Exception as error:  # each file system has errors of its own
        raise UserError(f"cannot write to {storage.where}: {getattr(error, 'strerror', None) or error}") from None


def _run(storage: Storage, jobs: Sequence[Job], orders: Orders, means: Means, train: Train | None) -> Swept:
    present = set(storage.names(""))
    done = [job.folder for job in jobs if job.folder in present and storage.exists(f"{job.folder}/result.json")]
    scheduler = Scheduler(jobs, done, pause=min(5.0, means.lease / 4))
    missing = [job for job in jobs if scheduler.states[job.folder] != "done"]
    if missing:
        _say(f"{len(missing)} of {len(jobs)} runs to do in {storage.where}", means)
        _drive(scheduler, storage, missing, orders, means, train)
    by_state = {state: [job for job in jobs if scheduler.states[job.folder] == state] for state in ("done", "blocked")}
    failed = [(job, scheduler.outcomes[job.folder]) for job in jobs if scheduler.states[job.folder] == "failed"]
    return Swept(by_state["done"], failed, by_state["blocked"])


def _drive(
    scheduler: Scheduler, storage: Storage, jobs: Sequence[Job], orders: Orders, means: Means, train: Train | None
) -> None:
    pool = _pool(jobs, orders, means, train)
    stopped = False

    def look() -> list[Row]:
        return rows(_progress(scheduler, storage))

    try:
        with _signals(), View(look, means.quiet):  # signals last: Ray has handlers of its own
            try:
                drive(scheduler, pool)
                stopped = pool.stopped
            except KeyboardInterrupt:
                _say("stopping: every run saves a checkpoint first (Ctrl-C again to leave at once)", means)
                for folder, outcome in pool.stop():
                    scheduler.ended(folder, outcome, time.monotonic())
                stopped = True
    finally:
        pool.close()
    if stopped:
        left = sum(state in ("waiting", "running") for state in scheduler.states.values())
        raise Interrupted(f"stopped and saved, {left} runs are left; the same command continues")


def _pool(jobs: Sequence[Job], orders: Orders, means: Means, train: Train | None) -> Pool:
    if find_spec("ray") is None:
        if means.address is not None:
            raise UserError("--address needs Ray: pip install 'cic[sweep]'")
        _say(
            "one run after another in this process; with pip install 'cic[sweep]' as many at once as there are cores, "
            "or on a cluster",
            means,
        )
        return SerialPool(orders, train)
    if means.slots == 1 and means.address is None:
        return SerialPool(orders, train)
    from cic.sweep.on_ray import RayPool

    return RayPool(orders, jobs, means.address, means.slots, train)


def _progress(scheduler: Scheduler, storage: Storage) -> Iterator[Progress]:
    """As the scheduler knows it; only of runs that are running the files are read."""
    for folder, job in scheduler.jobs.items():
        state = scheduler.states[folder]
        if state == "running" or folder in scheduler.elsewhere:
            yield read_running(storage, job)
        else:
            yield Progress(job, "failed" if state == "blocked" else state)


def _say(text: str, means: Means) -> None:
    if not means.quiet:
        print(f"cic: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM and SIGHUP stop a sweep as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    except ValueError:  # not in the main thread, where Python allows no handlers
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
