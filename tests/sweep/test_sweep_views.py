"""What a sweep says of itself: status from files, the table, the cost."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import steady
from hypothesis import given
from hypothesis import strategies as st
from make_plans import make_job, tiny_plan
from rich.console import Console

from cic.core.errors import UserError
from cic.sweep import cost
from cic.sweep.completion import complete_configs, make_jobs
from cic.sweep.cost import Measured, estimate
from cic.sweep.jobs import read_jobs, write_jobs
from cic.sweep.leases import take
from cic.sweep.run import Means, run_plan
from cic.sweep.status import Progress, read_status, rows, total
from cic.sweep.storage import FolderStorage
from cic.sweep.table import duration, line, table

STATES = ("waiting", "running", "done", "failed")


@steady
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from(STATES), st.integers(0, 120))))
def test_rows_count_every_run_once(runs: list[tuple[str, str, str, int]]) -> None:
    progress = [
        Progress(make_job(f"r{index}", method=method, domain=domain), state, step, 2.0 if state == "running" else 0.0)
        for index, (method, domain, state, step) in enumerate(runs)
    ]
    parts = rows(progress)
    whole = total(parts)
    assert [getattr(whole, state) for state in STATES] == [sum(r[2] == state for r in runs) for state in STATES]
    assert len(parts) == len({(method, domain) for method, domain, _, _ in runs})
    left = sum(max(0, 100 - step) for _, _, state, step in runs if state in ("waiting", "running"))
    assert whole.steps_left == left
    if left and whole.rate:
        assert whole.seconds_left == left / whole.rate
    console = Console(width=120, file=open(os.devnull, "w"), record=True)  # noqa: SIM115
    console.print(table(parts))
    assert len(console.export_text().splitlines()) >= len(parts) + 1
    assert f"{whole.done} of {len(runs)} runs done" in line(parts)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89, "89 s"), (600, "10 min"), (7200, "2.0 h"), (86400, "24 h"), (10**6, "12 days"), (math.nan, "?")],
)
def test_durations_are_read_at_a_glance(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_every_state_is_seen_in_the_files(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    jobs = [make_job(name) for name in ("new", "busy", "gone", "bad")]
    jobs += [make_job("over", ("gone",)), make_job("blocked", ("bad",))]
    write_jobs(storage, jobs)
    assert read_jobs(storage) == jobs
    assert take(storage, "busy", "me") is not None
    storage.write("busy/status.json", b'{"state": "running", "step": 40}')
    storage.write("busy/timing.jsonl", b'{"step": 20, "time/steps_per_second": 3}\n{"step": 40, "time/steps_per_sec')
    assert take(storage, "gone", "me", seconds=1, clock=lambda: 0.0) is not None  # long expired
    storage.write("gone/status.json", b'{"state": "running", "step": 30}')
    storage.write("bad/status.json", b'{"state": "failed", "step": 7, "message": "why"}')
    storage.write("over/result.json", b"{}")
    found = {run.job.name: run for run in read_status(storage)}
    assert {name: run.state for name, run in found.items()} == {
        "new": "waiting",
        "busy": "running",
        "gone": "waiting",
        "bad": "failed",
        "over": "done",
        "blocked": "failed",
    }
    assert (found["busy"].step, found["busy"].rate) == (40, 3.0)
    assert (found["bad"].message, found["blocked"].message) == ("why", "not begun, because bad failed")
    storage.write("sweep/jobs-0.json", b"[{")
    with pytest.raises(UserError, match=r"jobs-0.json is damaged"):
        read_jobs(storage)


@pytest.mark.slow
def test_the_cost_is_measured_once_per_shape_and_the_disk_is_right(tmp_path: Path) -> None:
    plan = tiny_plan(seeds=3, tasks="gridworld")
    jobs, configs = make_jobs(plan), complete_configs(plan)
    said: list[str] = []
    found = estimate(jobs, {job.folder: configs[job.name] for job in jobs}, said.append)
    assert said == ["timing pretrain of cic in gridworld", "timing finetune of cic in gridworld"]
    assert all(found.seconds[job.folder] > 0 for job in jobs)
    small = tiny_plan(seeds=1)
    few = [job for job in jobs if job.name in {entry.name for entry in small.runs}]
    expected = estimate(few, {job.folder: configs[job.name] for job in few}).disk
    run_plan(small, str(tmp_path), Means(slots=1, quiet=True))
    kept = [path for path in tmp_path.glob("*/*/**/*.safetensors") if path.parts[-2] != "tensorboard"]
    actual = sum(path.stat().st_size for path in kept)
    assert 0.6 < expected / actual < 1.6  # finetunings are timed without skills, so their networks are a little smaller


@pytest.mark.parametrize(("steps", "held", "copied"), [(120, 1_000, 120), (120, 100, 100), (9e5, 1e6, 300_000)])
def test_the_steps_that_a_finetuning_copies_are_counted_as_disk(
    steps: float, held: float, copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = Measured(plain=1, learning=1, weights=1, checkpoint=1, replay=7)
    monkeypatch.setattr(cost, "measure", lambda config: each)
    disk = {}
    for share in (0, 0.5):
        more = (f"finetune.prior_data={share}", f"pretrain.steps={steps:.0f}", f"pretrain.replay={held:.0f}")
        plan = tiny_plan(seeds=2, tasks="gridworld", more=more)
        jobs, configs = make_jobs(plan), complete_configs(plan)
        disk[share] = estimate(jobs, {job.folder: configs[job.name] for job in jobs}).disk
    finetunings = sum(job.kind == "finetune" for job in jobs)
    assert finetunings >= 2
    assert disk[0.5] - disk[0] == finetunings * 7 * copied


@pytest.mark.slow
def test_two_sweeps_at_once_share_the_work(tmp_path: Path) -> None:
    tiny_plan(seeds=4).write(tmp_path / "plan.json")
    command = [sys.executable, "-m", "cic.cli", "sweep", str(tmp_path / "plan.json"), "--out", str(tmp_path / "out")]
    both = [subprocess.Popen([*command, "--slots", "1"], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=200)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert all("8 of 8 runs done, 0 failed" in text for text in said)
    leases = list((tmp_path / "out").glob("*/.lease-*.json"))
    assert len({path.parent for path in leases}) == 8
    trained = [json.loads((path.parent / "result.json").read_text()) for path in leases if path.name == ".lease-1.json"]
    assert len(trained) == 8
    owners = {json.loads(path.read_text())["owner"] for path in leases}
    assert len(owners) == 2  # neither did all of it
