"""Status, progress table and cost of a sweep."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from helpers import steady
from hypothesis import given
from hypothesis import strategies as st
from make_plans import make_spec, tiny_plan
from rich.console import Console

from cic.core.errors import UserError
from cic.sweep import cost
from cic.sweep.command import sweep_cost
from cic.sweep.progress import (
    STATES,
    RunProgress,
    duration,
    progress_line,
    progress_table,
    read_status,
    time_left,
)
from cic.sweep.specs import read_specs, write_specs
from cic.sweep.store import Store


@steady
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from(STATES), st.integers(0, 120))))
def test_groups_count_every_run_once(runs: list[tuple[str, str, str, int]]) -> None:
    progress = [
        RunProgress(
            make_spec(f"r{index}", method=method, domain=domain), state, step, 2.0 if state == "running" else 0.0
        )
        for index, (method, domain, state, step) in enumerate(runs)
    ]
    counts = {state: sum(run[2] == state for run in runs) for state in STATES}
    groups = {(method, domain) for method, domain, _, _ in runs}
    left = sum(max(0, 100 - step) for _, _, state, step in runs if state in ("waiting", "running"))
    rate = 2.0 * counts["running"]
    assert time_left(progress) == (duration(left / rate) if rate else "?" if left else "0 s")
    console = Console(width=120, file=open(os.devnull, "w"), record=True)  # noqa: SIM115
    console.print(progress_table(progress))
    lines = console.export_text().splitlines()
    if len(groups) > 1:
        assert lines[-1].split()[1:5] == [str(count or "-") for count in counts.values()]
    assert sum(line.split()[0] in "abc" for line in lines[1:]) == len(groups)
    assert f"{counts['done']} of {len(runs)} runs done" in progress_line(progress)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89, "89 s"), (600, "10 min"), (7200, "2.0 h"), (86400, "24 h"), (10**6, "12 days"), (math.nan, "?")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def status(state: str, step: int, **more: Any) -> bytes:
    heartbeat = {"host": platform.node(), "pid": os.getpid(), "updated": datetime.now(timezone.utc).isoformat()}
    return json.dumps({"state": state, "step": step} | heartbeat | more).encode()


def test_every_state_is_read_from_the_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    specs = [make_spec(name) for name in ("new", "busy", "killed", "bad", "empty")]
    specs += [make_spec("over", ("killed",)), make_spec("blocked", ("bad",))]
    write_specs(store, specs)
    assert read_specs(store) == specs
    store.write("busy/status.json", status("running", 40))
    store.write("busy/timing.jsonl", b'{"step": 20, "time/steps_per_second": 3}\n{"step": 40, "time/steps_per_sec')
    store.write("killed/status.json", status("running", 30, pid=2**22 + 1))
    store.write("bad/status.json", status("failed", 7, message="why"))
    store.write("empty/result.json", b"")
    store.write("over/result.json", b"{}")
    found = {run.spec.name: run for run in read_status(store)}
    assert {name: run.state for name, run in found.items()} == {
        "new": "waiting",
        "busy": "running",
        "killed": "waiting",
        "bad": "failed",
        "empty": "waiting",
        "over": "done",
        "blocked": "failed",
    }
    assert (found["busy"].step, found["busy"].rate) == (40, 3.0)
    assert (found["bad"].message, found["blocked"].message) == ("why", "not started, because bad failed")
    store.write("sweep/jobs-0.json", b"[{")
    with pytest.raises(UserError, match=r"jobs-0.json is damaged"):
        read_specs(store)


@pytest.mark.parametrize("where", ["", "file://"])
def test_the_status_reads_regular_files_only(where: str, tmp_path: Path) -> None:
    """A FIFO would block the reader, a link could lead anywhere."""
    store = Store(f"{where}{tmp_path}")
    write_specs(store, [make_spec("fifo"), make_spec("link")])
    (tmp_path / "result.json").write_text("{}")
    for name in ("fifo", "link"):
        (tmp_path / name).mkdir()
    for name in ("status.json", "result.json"):
        os.mkfifo(tmp_path / "fifo" / name)
        (tmp_path / "link" / name).symlink_to(tmp_path / "result.json")
    assert [run.state for run in read_status(store)] == ["waiting", "waiting"]


def test_the_cost_is_extrapolated_from_one_run_of_each_method_and_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Any] = []
    monkeypatch.setattr(cost, "seconds_per_step", lambda config: timed.append(config) or 36.0)
    found = sweep_cost(tiny_plan(seeds=3))
    assert [config.objective for config in timed] == ["cic"]
    assert found.text() == "6 runs: 3 pre-trainings, 3 finetunings\nabout 6 core-hours"  # 3 × (120 + 80) × 36 s


def test_a_short_run_is_timed() -> None:
    seconds = sweep_cost(tiny_plan(tasks="gridworld")).seconds
    assert all(0 < value < 100 for value in seconds.values())


@pytest.mark.slow
def test_two_sweeps_share_the_work(tmp_path: Path) -> None:
    """Each run is trained once, and neither sweep trains all of them."""
    tiny_plan(seeds=4).write(tmp_path / "plan.json")
    command = [sys.executable, "-m", "cic.cli", "sweep", str(tmp_path / "plan.json"), "--out", str(tmp_path / "out")]
    both = [subprocess.Popen([*command, "--slots", "1"], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate(timeout=200)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert all("8 of 8 runs done, 0 failed" in text for text in printed)
    statuses = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("*/status.json")]
    assert len(statuses) == 8
    assert {status["pid"] for status in statuses} == {process.pid for process in both}
    logs = [path.read_text() for path in (tmp_path / "out").glob("*/log.txt")]
    assert all(text.count("step 0/") == 1 for text in logs)  # started once
