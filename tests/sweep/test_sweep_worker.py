"""The worker function and the order of runs, without Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from helpers import steady
from hypothesis import given
from hypothesis import strategies as st
from make_plans import dags, make_spec

from cic.core import imports
from cic.learning.objectives import get_objective
from cic.sweep import driver, worker
from cic.sweep.driver import Executor, submit_all
from cic.sweep.remote_run import RemoteRun
from cic.sweep.specs import RunSpec
from cic.sweep.store import Store
from cic.sweep.worker import RunResult, SweepContext, import_shipped, run_one


def context_of(where: str, name: str = "driver") -> SweepContext:
    Store(where).write("sweep/.seen", b"")
    return SweepContext(where, "sweep/.seen", name, ("cic",))


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs that were trained, by a training that takes no time."""
    names: list[str] = []

    def train(spec: RunSpec, path: Path, source: Path | None) -> None:
        names.append(spec.name)
        (path / "result.json").write_text("{}")

    monkeypatch.setattr(worker, "train_run", train)
    return names


class FakeExecutor(Executor):
    """Runs end as `states` lists them, one state per attempt."""

    def __init__(self, states: dict[str, list[str]], limit: int) -> None:
        super().__init__(SweepContext("", "", "", ()))
        self.states, self.limit = states, limit
        self.started: list[str] = []
        self.largest = 0

    def submit(self, spec: RunSpec, dependencies: Sequence[Any]) -> Any:
        for dependency in dependencies:
            if dependency.state != "done":
                return dependency if dependency.state == "locked" else RunResult("blocked")
        self.started.append(spec.folder)
        states = self.states.get(spec.folder, [])
        return RunResult(states.pop(0) if states else "done")  # type: ignore[arg-type]

    def wait(self, handles: dict[str, Any]) -> list[str]:
        self.largest = max(self.largest, len(handles))
        return list(reversed(handles))


@steady
@given(dags(), st.integers(1, 4), st.data())
def test_every_run_ends_as_its_dependencies_allow(dag: Any, limit: int, data: Any) -> None:
    specs = [make_spec(name, after) for name, after in dag]
    names = st.sampled_from([spec.folder for spec in specs])
    states = data.draw(st.dictionaries(names, st.lists(st.sampled_from(["locked", "failed"]), max_size=3)))
    done = data.draw(st.sets(st.sampled_from([spec.folder for spec in specs if not spec.after])))
    expected: dict[str, str] = {}
    for spec in specs:
        if spec.folder in done:
            expected[spec.folder] = "done"
        elif any(expected[folder] != "done" for folder in spec.after):
            expected[spec.folder] = "blocked"
        else:
            expected[spec.folder] = "failed" if "failed" in states.get(spec.folder, []) else "done"
    executor = FakeExecutor(states, limit)
    results = {folder: RunResult("done") for folder in done}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_PAUSE", 0.0)
        submit_all(executor, specs, results)
    assert {folder: result.state for folder, result in results.items()} == expected
    assert not done & set(executor.started)
    assert executor.largest <= limit


@pytest.mark.parametrize("state", ["failed", "blocked", "locked", "stopped"])
def test_a_run_waits_for_its_dependencies(state: Any, tmp_path: Path, trained: list[str]) -> None:
    context = context_of(str(tmp_path))
    found = run_one(context, make_spec("b"), RunResult("done"), RunResult(state))
    assert found.state == ("blocked" if state in ("failed", "blocked") else state)
    assert trained == []
    assert run_one(context, make_spec("b"), RunResult("done")).state == "done"
    assert trained == ["b"]


def test_a_finished_run_is_left_alone(tmp_path: Path, trained: list[str]) -> None:
    context = context_of(str(tmp_path))
    assert [run_one(context, make_spec("a")).state for _ in range(2)] == ["done", "done"]
    assert trained == ["a"]


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_a_damaged_result_does_not_count(content: str, tmp_path: Path, trained: list[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "result.json").write_text(content)
    assert run_one(context_of(str(tmp_path)), make_spec("a")).state == "done"
    assert trained == ["a"]


def test_a_run_of_another_process_is_locked(tmp_path: Path, trained: list[str]) -> None:
    """Until that process ends, in whatever way."""
    context = context_of(str(tmp_path))
    code = f"""
import sys, time
from cic.sweep import worker
from pathlib import Path
with worker._local_folder(None, worker.Store({str(tmp_path)!r}), type("Spec", (), {{"folder": "a"}})) as path:
    print(path, flush=True)
    time.sleep(100)
"""
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline().strip() == str(tmp_path / "a")
    assert run_one(context, make_spec("a")).state == "locked"
    other.kill()
    other.communicate()
    assert run_one(context, make_spec("a")).state == "done"
    assert trained == ["a"]


def test_a_url_is_locked_while_another_driver_is_alive(tmp_path: Path, trained: list[str]) -> None:
    where = f"memory://{uuid4().hex}"
    store, mine, other = Store(where), context_of(where, "mine"), context_of(where, "other")
    assert RemoteRun(store, "a", tmp_path).lock("other")
    assert run_one(mine, make_spec("a")).state == "locked"
    assert run_one(other, make_spec("a")).state == "done"  # Ray has retried a task whose worker was lost
    assert trained == ["a"]
    assert ".worker.json" not in store.names("a")


@pytest.mark.parametrize("held", ["seconds=90", "days=-9999", "dead", "damaged"])
def test_a_lock_that_nobody_renews_expires(held: str, tmp_path: Path, trained: list[str]) -> None:
    """Also one that is dated in the future, or that cannot be read."""
    where = f"memory://{uuid4().hex}"
    name, _, amount = held.partition("=")
    age = timedelta(**{name: int(amount)}) if amount else timedelta()
    content = {
        "driver": "other",
        "host": "elsewhere",
        "pid": 1,
        "updated": (datetime.now(timezone.utc) - age).isoformat(),
    }
    if held == "dead":
        child = subprocess.Popen(["true"])
        child.wait()
        content |= {"host": os.uname().nodename, "pid": child.pid}
    Store(where).write("a/.worker.json", b"{" if held == "damaged" else json.dumps(content).encode())
    assert run_one(context_of(where), make_spec("a")).state == "done"


def test_a_run_that_fails_returns_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(spec: RunSpec, path: Path, source: Path | None) -> None:
        print("line before the error")
        raise RuntimeError("this one always fails")

    monkeypatch.setattr(worker, "train_run", fail)
    found = run_one(context_of(str(tmp_path)), make_spec("a"))
    assert (found.state, found.message) == ("failed", "RuntimeError: this one always fails")
    assert "line before the error" in found.log
    assert json.loads((tmp_path / "a" / "status.json").read_text())["state"] == "failed"


@pytest.mark.parametrize("name", ["log.txt", "status.json", ".worker.lock", ".lock", "checkpoints"])
def test_nothing_is_written_through_links(name: str, tmp_path: Path, trained: list[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / name).symlink_to(tmp_path / "mine")
    result = run_one(context_of(str(tmp_path)), make_spec("a"))
    assert result.state == "failed"
    assert f"{name} is a link" in result.message
    assert (tmp_path / "mine").read_text() == "mine"
    assert trained == []


def test_the_folder_of_a_run_is_no_link(tmp_path: Path, trained: list[str]) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    assert "is a link" in run_one(context_of(str(tmp_path)), make_spec("a")).message
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert trained == []


def test_a_file_that_the_node_lacks_is_imported_from_its_content(own_code: Path) -> None:
    shipped = ((str(own_code), own_code.read_text()),)
    own_code.unlink()
    import_shipped(shipped)
    import_shipped(shipped)  # a second run in the same worker
    assert get_objective("constant").title == "Constant"
    assert [Path(name).name for name in imports.imported()] == ["own_code.py"]
