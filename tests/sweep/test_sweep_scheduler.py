"""The scheduler: everything that can be done is done, in order, once, with little idle time."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

import pytest
from helpers import steady
from hypothesis import given
from hypothesis import strategies as st
from make_plans import dags, make_job

from cic.sweep.jobs import Job
from cic.sweep.scheduler import Outcome, Scheduler, drive
from cic.sweep.simulation import SimulatedPool, critical_path, simulate

RETRIES = 2


class Recorder(SimulatedPool):
    """Checks at each start that what must come before is done."""

    def __init__(
        self, workers: int, scheduler: Scheduler, words: dict[str, list[str]], times: dict[str, float]
    ) -> None:
        super().__init__(workers, lambda job: times[job.folder], self._say)
        self.scheduler, self.words = scheduler, words
        self.started: list[str] = []
        self.most = 0

    def submit(self, job: Job) -> None:
        assert all(self.scheduler.states[other] == "done" for other in job.after)
        self.started.append(job.folder)
        super().submit(job)
        self.most = max(self.most, len(self._ends))

    def _say(self, job: Job) -> Outcome:
        words = self.words.get(job.folder, [])
        return Outcome(words.pop(0) if words else "done")  # type: ignore[arg-type]


@steady
@given(dags(), st.integers(1, 4), st.data())
def test_every_run_ends_as_it_must(dag: Any, workers: int, data: Any) -> None:
    jobs = [make_job(name, after) for name, after in dag]
    words = data.draw(
        st.dictionaries(
            st.sampled_from([job.folder for job in jobs]),
            st.lists(st.sampled_from(["lost", "held", "failed"]), max_size=5),
        )
    )
    told = {name: list(given) for name, given in words.items()}
    times = {job.folder: data.draw(st.floats(0.1, 9)) for job in jobs}
    done = set(data.draw(st.sets(st.sampled_from([job.folder for job in jobs if not job.after]))))
    scheduler = Scheduler(jobs, done, retries=RETRIES)
    pool = Recorder(workers, scheduler, words, times)
    drive(scheduler, pool, clock=lambda: pool.now)
    expected: dict[str, str] = {}
    for job in jobs:
        before = [expected[other] for other in job.after]
        said = told.get(job.folder, [])
        fails = "failed" in said and said[: said.index("failed")].count("lost") <= RETRIES
        if job.folder in done:
            expected[job.folder] = "done"
        elif any(state != "done" for state in before):
            expected[job.folder] = "blocked"
        else:
            expected[job.folder] = "failed" if fails or said.count("lost") > RETRIES else "done"
    assert scheduler.states == expected
    assert scheduler.finished
    assert not done & set(pool.started)
    assert pool.most <= workers


def test_a_stopped_run_waits_for_the_next_sweep() -> None:
    scheduler = Scheduler([make_job("a")])
    assert scheduler.take(0.0) is not None
    scheduler.ended("a", Outcome("stopped"), 0.0)
    assert scheduler.states == {"a": "waiting"}
    assert scheduler.take(1e9) is None
    assert not scheduler.finished


def test_a_run_that_another_sweep_has_is_asked_for_again_later() -> None:
    scheduler = Scheduler([make_job("a"), make_job("b")], pause=5.0)
    assert scheduler.take(0.0) is scheduler.jobs["a"]
    scheduler.ended("a", Outcome("held"), 0.0)
    assert scheduler.elsewhere == {"a"}
    assert scheduler.take(1.0) is scheduler.jobs["b"]
    assert scheduler.take(1.0) is None
    assert scheduler.take(5.0) is scheduler.jobs["a"]


def test_the_longest_chain_goes_first() -> None:
    chain = [make_job("c1", steps=10), make_job("c2", ("c1",), 10), make_job("c3", ("c2",), 10)]
    jobs = [make_job(f"s{index}", steps=15) for index in range(4)] + chain
    found = simulate(jobs, lambda job: float(job.steps), workers=3)
    assert found.seconds == 30
    assert found.idle == 0
    assert [job.folder for job in critical_path(jobs, lambda job: float(job.steps))] == ["c1", "c2", "c3"]


@steady
@given(dags(), st.integers(1, 5), st.data())
def test_no_schedule_beats_the_bounds_and_none_is_twice_as_long(dag: Any, workers: int, data: Any) -> None:
    """Graham 1969: a schedule that leaves no worker idle while a run is ready takes at most 2 − 1/m times the best."""
    jobs = [make_job(name, after, data.draw(st.integers(1, 9))) for name, after in dag]
    found = simulate(jobs, lambda job: float(job.steps), workers)
    chain = sum(job.steps for job in critical_path(jobs, lambda job: float(job.steps)))
    bound = max(chain, found.busy / workers)
    assert bound - 1e-9 <= found.seconds <= chain * (1 - 1 / workers) + found.busy / workers + 1e-9


def test_a_thousand_runs_keep_64_workers_busy() -> None:
    rng = random.Random(0)
    firsts = [make_job(f"p{index}", steps=2_000) for index in range(200)]
    rest = [make_job(f"{job.folder}-{task}", (job.folder,), 100) for job in firsts for task in range(4)]
    times = {job.folder: job.steps * rng.lognormvariate(0, 0.1) for job in [*firsts, *rest]}
    scheduler = Scheduler([*firsts, *rest])  # which knows the steps, not the times
    pool = SimulatedPool(64, lambda job: times[job.folder])
    drive(scheduler, pool, clock=lambda: pool.now)
    assert 1 - pool.busy / (64 * pool.now) < 0.05


@pytest.mark.slow
def test_ten_thousand_runs_on_512_workers() -> None:
    """Plan, leases and status with real files, in a process of its own because of the memory."""
    code = (
        "import dataclasses, json; from benchmarks.sweeps import large; print(json.dumps(dataclasses.asdict(large())))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(said.stdout)
    assert found["runs"] == 10_000
    assert found["seconds"] < 60
    assert found["megabytes"] < 1000
    assert found["idle"] < 0.05
