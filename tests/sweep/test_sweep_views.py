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
from cic.sweep.cost import Cost, Measured, estimate
from cic.sweep.display import duration, progress_line, progress_table
from cic.sweep.driver import ExecutionOptions, run_plan
from cic.sweep.resolve import resolve, resolve_configs
from cic.sweep.specs import read_specs, write_specs
from cic.sweep.status import RunProgress, group, read_status, total
from cic.sweep.store import Store

STATES = ("waiting", "running", "done", "failed")


@steady
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from(STATES), st.integers(0, 120))))
def test_groups_count_every_run_once(runs: list[tuple[str, str, str, int]]) -> None:
    progress = [
        RunProgress(
            make_spec(f"r{index}", method=method, domain=domain), state, step, 2.0 if state == "running" else 0.0
        )
        for index, (method, domain, state, step) in enumerate(runs)
    ]
    parts = group(progress)
    whole = total(parts)
    assert [getattr(whole, state) for state in STATES] == [sum(r[2] == state for r in runs) for state in STATES]
    assert len(parts) == len({(method, domain) for method, domain, _, _ in runs})
    left = sum(max(0, 100 - step) for _, _, state, step in runs if state in ("waiting", "running"))
    assert whole.steps_left == left
    if left and whole.rate:
        assert whole.seconds_left == left / whole.rate
    console = Console(width=120, file=open(os.devnull, "w"), record=True)  # noqa: SIM115
    console.print(progress_table(parts))
    assert len(console.export_text().splitlines()) >= len(parts) + 1
    assert f"{whole.done} of {len(runs)} runs done" in progress_line(parts)


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


def test_the_critical_path_is_the_longest_chain() -> None:
    chain = [make_spec("c1"), make_spec("c2", ("c1",)), make_spec("c3", ("c2",))]
    specs = [make_spec(f"s{index}") for index in range(4)] + chain
    cost = Cost(specs, {spec.folder: 10.0 if spec in chain else 25.0 for spec in specs}, 0.0)
    assert [spec.folder for spec in cost.critical_path()] == ["c1", "c2", "c3"]
    assert cost.text().splitlines()[-1] == "critical path 30 s: c1 → c2 → c3"


@pytest.mark.slow
def test_the_cost_is_measured_once_per_kind_of_run(tmp_path: Path) -> None:
    plan = tiny_plan(seeds=3, tasks="gridworld")
    specs, configs = resolve(plan), resolve_configs(plan)
    lines: list[str] = []
    found = estimate(specs, configs, lines.append)
    assert lines == ["timing pretrain of cic in gridworld", "timing finetune of cic in gridworld"]
    assert all(found.seconds[spec.folder] > 0 for spec in specs)
    small = tiny_plan(seeds=1)
    few = [spec for spec in specs if spec.name in {entry.name for entry in small.runs}]
    expected = estimate(few, configs).disk
    run_plan(small, str(tmp_path), ExecutionOptions(slots=1, quiet=True))
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
        specs = resolve(plan)
        disk[share] = estimate(specs, resolve_configs(plan)).disk
    finetunings = sum(spec.kind == "finetune" for spec in specs)
    assert finetunings >= 2
    assert disk[0.5] - disk[0] == finetunings * 7 * copied


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
