"""Sweeps on a real Ray: several nodes on this machine, some of which die."""

from __future__ import annotations

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
from make_plans import outcomes, tiny_plan
from ray_runs import crash_one, fail_one, note_gpu

from cic import cli
from cic.core.errors import UserError
from cic.sweep.plan import Entry, Needs, Plan
from cic.sweep.run import Means, run_plan

pytest.importorskip("ray")
STORE = {"object_store_memory": 100 << 20}
LONG = ("steps=800", "checkpoint_every=100")


def means(cluster: Any = None, **changes: Any) -> Means:
    return Means(**{"address": cluster and cluster.address, "lease": 4, "quiet": True} | changes)


@pytest.fixture(autouse=True)
def _workers_find_this_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent)]).strip(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", found)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head and one more node, a core each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **STORE})
    yield made
    made.shutdown()


@pytest.mark.slow
def test_two_at_once_give_the_bits_of_one_after_another(tmp_path: Path) -> None:
    plan = tiny_plan(seeds=2)
    run_plan(plan, str(tmp_path / "one"), Means(slots=1, quiet=True))
    ended = run_plan(plan, str(tmp_path / "two"), means(slots=2))
    assert len(ended.done) == 4
    assert outcomes(tmp_path / "one") == outcomes(tmp_path / "two")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nohost", "HOST:PORT"),
        ("127.0.0.1:1", r"no Ray cluster at 127.0.0.1:1 \(Connection refused\)"),
        pytest.param("192.0.2.77:6379", "no Ray cluster at 192.0.2.77:6379", marks=pytest.mark.slow),  # nobody answers
        ("no.such.host.invalid:6379", "no Ray cluster"),
    ],
)
def test_an_unreachable_address_is_said_soon(address: str, said: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(UserError, match=said):
        run_plan(tiny_plan(), str(tmp_path), Means(address=address, quiet=True))
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_what_listens_but_is_no_ray_is_said_within_30_seconds(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(UserError, match="no Ray head that answers"):
            run_plan(tiny_plan(), str(tmp_path), Means(address=address, quiet=True))
        assert time.monotonic() - began < 30


@pytest.mark.slow
def test_a_node_that_is_killed_costs_nothing_but_time(cluster: Any, tmp_path: Path) -> None:
    """Twelve runs; the node dies in the middle of a pre-training, and all results are those of a quiet sweep."""
    plan = tiny_plan(seeds=6, more=LONG)
    assert len(plan.runs) == 12
    quiet, out = tmp_path / "quiet", tmp_path / "out"
    run_plan(plan, str(quiet), Means(slots=1, quiet=True))
    node = cluster.add_node(num_cpus=1, **STORE)
    moved: list[str] = []

    def kill() -> None:
        while len(going := [run for run in out.glob("pretrain-*") if list(run.glob("checkpoints/0*"))]) < 2:
            time.sleep(0.02)
        moved.extend(run.name for run in going if not (run / "result.json").exists())
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    ended = run_plan(plan, str(out), means(cluster))
    killer.join(10)
    assert len(ended.done) == 12
    assert moved
    assert any((out / name / ".lease-2.json").exists() for name in moved)  # one was continued elsewhere
    assert outcomes(out) == outcomes(quiet)


@pytest.mark.slow
def test_behind_a_url_the_run_of_a_killed_worker_goes_on_elsewhere(tmp_path: Path) -> None:
    """Workers train in folders of their own; only the store is shared."""
    plan = tiny_plan(seeds=2, more=LONG)
    run_plan(plan, str(tmp_path / "quiet"), Means(slots=1, quiet=True))
    out, killed = tmp_path / "out", []

    def kill() -> None:
        while not (seen := list(out.glob("pretrain-*/checkpoints/0*/manifest.json"))):
            time.sleep(0.02)
        killed.append(json.loads((seen[0].parents[2] / ".lease-1.json").read_text())["pid"])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    ended = run_plan(plan, f"file://{out}", means(slots=2))
    assert len(ended.done) == 4
    assert killed
    assert outcomes(out) == outcomes(tmp_path / "quiet")


@pytest.mark.slow
def test_a_killed_sweep_does_only_what_is_missing(tmp_path: Path) -> None:
    plan, out = tiny_plan(seeds=4, more=LONG), tmp_path / "out"
    plan.write(tmp_path / "plan.json")
    run_plan(plan, str(tmp_path / "quiet"), Means(slots=1, quiet=True))
    command = [sys.executable, "-m", "cic.cli", "sweep", str(tmp_path / "plan.json"), "--out", str(out), "--slots", "2"]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE)
    while len(list(out.glob("*/result.json"))) < 2:
        assert driver.poll() is None
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    time.sleep(1)  # Ray's own processes follow their driver
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/result.json")}
    assert 2 <= len(before) < 8
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert outcomes(out) == outcomes(tmp_path / "quiet")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_everything(number: signal.Signals, tmp_path: Path) -> None:
    plan, out = tiny_plan(seeds=2, more=("steps=4000", "checkpoint_every=4000")), tmp_path / "out"
    plan.write(tmp_path / "plan.json")
    command = [sys.executable, "-m", "cic.cli", "sweep", str(tmp_path / "plan.json"), "--out", str(out), "--slots", "2"]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while len([path for path in out.glob("*/metrics.jsonl") if path.read_text().count("\n") > 3]) < 2:
        assert driver.poll() is None
        time.sleep(0.05)
    driver.send_signal(number)
    _, said = driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert said.splitlines()[-1] == "cic: stopped and saved, 4 runs are left; the same command continues"
    saved = [int(path.name) for path in out.glob("pretrain-*/checkpoints/0*")]
    assert len(saved) == 2
    assert all(0 < step < 4000 for step in saved)  # no checkpoint was due: they were made for the signal
    statuses = [json.loads(path.read_text())["state"] for path in out.glob("pretrain-*/status.json")]
    assert statuses == ["interrupted"] * 2


@pytest.mark.slow
def test_a_run_that_always_fails_and_one_whose_worker_dies(tmp_path: Path) -> None:
    ended = run_plan(tiny_plan(seeds=3), str(tmp_path / "fails"), means(slots=2), train=fail_one)
    assert len(ended.done) == 4
    assert [outcome.message for _, outcome in ended.failed] == ["RuntimeError: this one always fails"]
    assert len(ended.blocked) == 1
    ended = run_plan(tiny_plan(seeds=2), str(tmp_path / "dies"), means(slots=2, lease=1), train=crash_one)
    assert len(ended.done) == 2
    assert [outcome.message.split(":")[0] for _, outcome in ended.failed] == ["its worker died 4 times"]


@pytest.mark.slow
def test_a_storage_that_workers_do_not_see(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not see the sweep's storage memory://.*all nodes share"):
        run_plan(tiny_plan(), "memory://mine", means(slots=2))


@pytest.mark.slow
def test_a_node_without_the_package(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "cic.py").write_text("raise ModuleNotFoundError(\"No module named 'cic'\")")
    cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(tmp_path / "bare")}, **STORE)
    tiny_plan().write(tmp_path / "plan.json")
    code = cli.main(["sweep", str(tmp_path / "plan.json"), "--out", str(tmp_path), "--address", cluster.address])
    assert code == 2
    assert "cannot take part: it lacks the package cic: install it on every node" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_share_a_gpu(cluster: Any, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=2, num_gpus=1, **STORE)
    runs = [
        Entry(f"r{seed}", "pretrain", {"domain": "gridworld", "seed": seed}, needs=Needs(1, 0.5)) for seed in (0, 1)
    ]
    ended = run_plan(Plan(tuple(runs)), str(tmp_path), means(cluster), train=note_gpu)
    assert len(ended.done) == 2
    first, second = (json.loads((tmp_path / job.folder / "result.json").read_text()) for job in ended.done)
    assert (first["gpu"], second["gpu"]) == ("0", "0")
    assert first["began"] < second["ended"]
    assert second["began"] < first["ended"]  # at the same time


@pytest.mark.slow
def test_a_run_that_no_node_can_hold(tmp_path: Path) -> None:
    plan = Plan((Entry("large", "pretrain", {"domain": "gridworld"}, needs=Needs(1, 99)),))
    with pytest.raises(UserError, match="no node has what a run needs: 1 CPUs, 99 GPUs"):
        run_plan(plan, str(tmp_path), means(slots=2))


@pytest.mark.slow
def test_an_empty_run_costs_less_than_50_ms() -> None:
    from benchmarks.sweeps import empty

    assert empty() < 50


@pytest.mark.slow
@pytest.mark.skipif(os.getloadavg()[0] > 0.7, reason="two cores must be free to be compared with one")
def test_two_side_by_side_are_17_times_as_quick() -> None:
    from benchmarks.sweeps import pair

    one, two = pair()
    assert two > 1.7 * one
