"""Sweeps on a real Ray: several nodes on this machine, some of which are killed."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from make_plans import LAPTOP, all_result_files, tiny_plan

from cic import cli
from cic.core.errors import UserError
from cic.core.imports import import_first
from cic.sweep.command import sweep
from cic.sweep.plan import Entry, Plan, Resources

pytest.importorskip("ray")
STORE = {"object_store_memory": 100 << 20}
LONG = ("steps=800", "checkpoint_every=100")
SERIAL: Any = {"slots": 1, "quiet": True}
TWO: Any = {"slots": 2, "quiet": True}


def on(cluster: Any) -> dict[str, Any]:
    return {"address": cluster.address, "quiet": True}


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head with one core."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **STORE})
    yield made
    made.shutdown()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nohost", "HOST:PORT"),
        ("127.0.0.1:1", r"no Ray cluster at 127.0.0.1:1 \(Connection refused\)"),
        pytest.param("192.0.2.77:6379", "no Ray cluster at 192.0.2.77:6379", marks=pytest.mark.slow),  # no answer
        ("no.such.host.invalid:6379", "no Ray cluster"),
    ],
)
def test_an_unreachable_address_is_reported(address: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        sweep(tiny_plan(), out=tmp_path, address=address, quiet=True)


@pytest.mark.slow
def test_an_address_of_another_service_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cic.sweep.ray_executor._ANSWER_SECONDS", 5.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UserError, match="no Ray head answers"):
            sweep(tiny_plan(), out=tmp_path, address=address, quiet=True)


@pytest.mark.slow
def test_a_killed_node_loses_nothing(cluster: Any, tmp_path: Path) -> None:
    """The node dies in the middle of a pre-training, and all results equal those of a sweep without faults."""
    plan = tiny_plan(seeds=4, more=(*LONG, *LAPTOP))
    quiet, out = tmp_path / "quiet", tmp_path / "out"
    sweep(plan, out=quiet, **SERIAL)
    node = cluster.add_node(num_cpus=1, **STORE)
    interrupted: list[Path] = []

    def kill() -> None:
        while len(running := [run for run in out.glob("pretrain-*") if list(run.glob("checkpoints/0*"))]) < 2:
            time.sleep(0.02)
        interrupted.extend(run for run in running if not (run / "result.json").exists())
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    ended = sweep(plan, out=out, **on(cluster))
    killer.join(10)
    assert len(ended.done) == 8
    assert interrupted
    assert all_result_files(out) == all_result_files(quiet)


@pytest.mark.slow
def test_behind_a_url_the_run_of_a_killed_worker_is_resumed(tmp_path: Path) -> None:
    """With the settings of laptop scale. Workers train in their own scratch folders; only the store is shared."""
    plan = tiny_plan(seeds=2, more=(*LONG, *LAPTOP))
    sweep(plan, out=tmp_path / "quiet", **SERIAL)
    out, killed = tmp_path / "out", []

    def kill() -> None:
        while not (seen := list(out.glob("pretrain-*/checkpoints/0*/manifest.json"))):
            time.sleep(0.02)
        killed.append(json.loads((seen[0].parents[2] / "status.json").read_text())["pid"])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    ended = sweep(plan, out=f"file://{out}", **TWO)
    assert len(ended.done) == 4
    assert killed
    assert all_result_files(out) == all_result_files(tmp_path / "quiet")


def start_sweep(plan: Plan, tmp_path: Path) -> tuple[list[str], subprocess.Popen[str]]:
    plan.write(tmp_path / "plan.json")
    command = [sys.executable, "-m", "cic.cli", "sweep", str(tmp_path / "plan.json"), "--out", str(tmp_path / "out")]
    command += ["--slots", "2"]
    return command, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_after_a_killed_driver_the_same_command_continues(tmp_path: Path) -> None:
    plan, out = tiny_plan(seeds=3, more=LONG), tmp_path / "out"
    sweep(plan, out=tmp_path / "quiet", **SERIAL)
    command, driver = start_sweep(plan, tmp_path)
    while len(list(out.glob("*/result.json"))) < 2:
        assert driver.poll() is None
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    time.sleep(1)  # Ray's own processes end after their driver
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/result.json")}
    assert 2 <= len(before) < 6
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert all_result_files(out) == all_result_files(tmp_path / "quiet")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_every_run(number: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _, driver = start_sweep(tiny_plan(seeds=2, more=("steps=4000", "checkpoint_every=4000")), tmp_path)
    while len([path for path in out.glob("*/metrics.jsonl") if path.read_text().count("\n") > 3]) < 2:
        assert driver.poll() is None
        time.sleep(0.05)
    driver.send_signal(number)
    _, printed = driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert printed.splitlines()[-1] == "cic: stopped and saved, 4 runs are left; the same command continues"
    saved = [int(path.name) for path in out.glob("pretrain-*/checkpoints/0*")]
    assert len(saved) == 2
    assert all(0 < step < 4000 for step in saved)  # no checkpoint was due: they were made for the signal
    statuses = [json.loads(path.read_text())["state"] for path in out.glob("pretrain-*/status.json")]
    assert statuses == ["interrupted"] * 2


@pytest.mark.slow
def test_failing_runs_and_dying_workers_stop_only_their_dependents(tmp_path: Path, own_code: Path) -> None:
    """Beside them, methods of the user's own run in two processes as in one."""
    import_first([str(own_code)])
    good = tiny_plan(seeds=2, objectives=("constant",))
    sweep(good, out=tmp_path / "one", **SERIAL)
    plan = Plan((*good.runs, *tiny_plan(objectives=("fails", "crashes")).runs))
    ended = sweep(plan, out=tmp_path / "two", **TWO)
    assert {spec.method for spec in ended.done} == {"constant"}
    messages = {spec.method: result.message for spec, result in ended.failed}
    assert messages["fails"] == "RuntimeError: this one always fails"
    assert messages["crashes"].startswith("its worker died 4 times")
    assert sorted((spec.method, spec.kind) for spec in ended.blocked) == [
        ("crashes", "finetune"),
        ("fails", "finetune"),
    ]
    found = all_result_files(tmp_path / "two")
    assert {name: found[name] for name in all_result_files(tmp_path / "one")} == all_result_files(tmp_path / "one")


@pytest.mark.slow
def test_workers_import_what_the_driver_imports(cluster: Any, own_code: Path, tmp_path: Path) -> None:
    """An own method in an own environment: from flags, from the plan that they write, and as --seeds."""
    plan, out = tmp_path / "plan.json", tmp_path / "out"
    small = ["hidden=8", "batch=8", "steps=110", "finetune.steps=90", "finetune.warmup=40", "finetune.eval_every=90"]
    small += ["finetune.eval_episodes=1", "finetune.search=fixed"]
    cic = [sys.executable, "-m", "cic.cli"]
    made = [*cic, "sweep", "--objectives", "constant", "--domains", "mine", "--scale", "smoke", "--tasks", "mine"]
    subprocess.run([*made, "--import", own_code, "--set", *small, "--plan", plan], check=True)
    content = json.loads(plan.read_text())
    assert content["imports"] == [str(own_code)]
    assert len(content["runs"]) == 2
    done = subprocess.run(
        [*cic, "sweep", plan, "--out", out, "--address", cluster.address], capture_output=True, text=True, check=False
    )
    assert "2 of 2 runs done" in done.stdout, done.stdout + done.stderr
    (run,) = out.glob("pretrain-constant-mine-*/config.json")
    assert json.loads(run.read_text())["imports"] == [str(own_code)]
    seeds = [*cic, "pretrain", "--domain", "mine", "--objective", "constant", "--seeds", "0-1", "--scale", "smoke"]
    seeds += ["--hidden", "8", "--batch", "8", "--steps", "110", "--import", "own_code", "--out", str(out)]
    done = subprocess.run(seeds, capture_output=True, text=True, check=False, cwd=own_code.parent)  # by name
    assert "2 of 2 runs done" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_a_store_that_workers_do_not_see(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not see the sweep's storage memory://.*all nodes share"):
        sweep(tiny_plan(), out="memory://mine", **TWO)


@pytest.mark.slow
def test_a_node_without_the_package(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "cic.py").write_text("raise ModuleNotFoundError(\"No module named 'cic'\")")
    cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(tmp_path / "bare")}, **STORE)
    tiny_plan().write(tmp_path / "plan.json")
    code = cli.main(["sweep", str(tmp_path / "plan.json"), "--out", str(tmp_path), "--address", cluster.address])
    assert code == 2
    assert "cannot take part: it lacks the package cic: " in capsys.readouterr().err


@pytest.mark.slow
def test_runs_share_a_gpu(cluster: Any, tmp_path: Path, own_code: Path) -> None:
    import_first([str(own_code)])
    cluster.add_node(num_cpus=2, num_gpus=1, **STORE)
    pretrainings = [entry for entry in tiny_plan(seeds=2, objectives=("notes",)).runs if entry.kind == "pretrain"]
    plan = Plan(tuple(dataclasses.replace(entry, needs=Resources(1, 0.5)) for entry in pretrainings))
    assert len(sweep(plan, out=tmp_path / "out", **on(cluster)).done) == 2
    notes = [path.read_text().split() for path in own_code.parent.glob("notes-*")]
    assert {gpu for lines in notes for gpu in lines[::2]} == {"0"}
    first, second = ((float(lines[1]), float(lines[-1])) for lines in notes)
    assert first[0] < second[1]
    assert second[0] < first[1]  # at the same time


@pytest.mark.slow
def test_a_run_that_no_node_can_hold(tmp_path: Path) -> None:
    plan = Plan((Entry("large", "pretrain", {"domain": "gridworld"}, needs=Resources(1, 99)),))
    with pytest.raises(UserError, match="no node has what a run needs: 1 CPUs, 99 GPUs"):
        sweep(plan, out=tmp_path, **TWO)
