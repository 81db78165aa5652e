"""Sweeps in this process: idempotent, resumed bit-exactly, failures reported; in a folder and behind a URL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from make_plans import LAPTOP, all_result_files, result_files, tiny_plan

import cic
from cic import cli
from cic.core.errors import Interrupted, UserError
from cic.core.imports import import_first
from cic.runs import records
from cic.sweep import driver, worker
from cic.sweep.command import sweep
from cic.sweep.plan import Entry, Plan
from cic.sweep.progress import read_status
from cic.sweep.remote_run import RemoteRun
from cic.sweep.resolve import resolve
from cic.sweep.specs import RunSpec, read_specs
from cic.sweep.store import Store
from cic.sweep.worker import train_run

SERIAL: Any = {"slots": 1, "quiet": True}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pre-trainings with one finetuning each."""
    out = tmp_path_factory.mktemp("swept")
    assert len(sweep(tiny_plan(seeds=2), out=out, **SERIAL).done) == 4
    return out


def test_a_run_of_a_sweep_equals_a_run_of_the_api(swept: Path, tmp_path: Path) -> None:
    first = next(entry for entry in tiny_plan().runs if entry.kind == "pretrain")
    made = cic.pretrain(out=tmp_path / "p", quiet=True, **first.config)
    (mine,) = swept.glob("pretrain-cic-gridworld-s0-*")
    assert result_files(mine) == result_files(made.path)
    then = next(entry for entry in tiny_plan().runs if entry.kind == "finetune")
    tuned = cic.finetune(made.path, out=tmp_path / "f", quiet=True, **then.config)
    (mine,) = swept.glob("finetune-cic-*-s0-*")
    assert result_files(mine) == result_files(tuned.path)
    assert (mine / "log.txt").read_text().count("step") >= 1


def test_finished_runs_are_not_repeated(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another plan that contains the same runs executes only the others."""
    trained: list[str] = []

    def note(spec: RunSpec, path: Path, source: Path | None) -> None:
        trained.append(spec.name)
        (path / "result.json").write_text("{}")

    monkeypatch.setattr(worker, "train_run", note)
    assert len(sweep(tiny_plan(seeds=2), out=swept, **SERIAL).done) == 4
    assert trained == []
    sweep(Plan((*tiny_plan(seeds=2).runs, Entry("new", "pretrain", {"domain": "walker"}))), out=swept, **SERIAL)
    assert trained == ["new"]


def test_a_damaged_result_is_repaired(swept: Path) -> None:
    (path,) = swept.glob("pretrain-cic-gridworld-s1-*/result.json")
    before = path.read_bytes()
    path.write_text("")
    assert [run.state for run in read_status(Store(swept))].count("waiting") == 1
    sweep(tiny_plan(seeds=2), out=swept, **SERIAL)
    assert path.read_bytes() == before


def test_the_status_is_read_from_the_files(swept: Path) -> None:
    progress = [run for run in read_status(Store(swept)) if run.spec.domain == "gridworld"]
    assert [run.state for run in progress] == ["done"] * 4


def test_a_report_reads_the_folder_of_a_sweep(swept: Path) -> None:
    runs, problems = records.read([swept])
    assert len([run for run in runs if run.finished and run.domain == "gridworld"]) == 4
    assert problems == []


# ---- failures --------------------------------------------------------------------------------------------------


def test_a_failed_run_stops_only_its_dependents(tmp_path: Path, own_code: Path) -> None:
    import_first([str(own_code)])
    out = tmp_path / "out"
    plan = tiny_plan(objectives=("fails", "constant"))
    ended = sweep(plan, out=out, **SERIAL)
    assert sorted(spec.method for spec in ended.done) == ["constant", "constant"]
    ((spec, result),) = ended.failed
    assert result.message == "RuntimeError: this one always fails"
    assert "own_code.py" in result.log
    assert [blocked.kind for blocked in ended.blocked] == ["finetune"]
    summary = ended.summary(str(out))
    assert "2 of 4 runs done, 1 failed" in summary
    assert f"failed: {spec.name}" in summary
    assert f"not started, because a run on which they depend failed: {ended.blocked[0].name}" in summary
    found = {run.spec.name: run for run in read_status(Store(out))}
    assert (found[spec.name].state, found[spec.name].message) == ("failed", "this one always fails")
    own_code.write_text(own_code.read_text().replace("raise RuntimeError", "print"))
    del sys.modules["own_code"]  # the user has fixed the error and starts the same command again
    import_first([str(own_code)])
    assert len(sweep(plan, out=out, **SERIAL).done) == 4


def test_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        sweep(tiny_plan(), out=tmp_path / "file", **SERIAL)
    with pytest.raises(UserError, match="cannot be opened"):
        sweep(tiny_plan(), out="nosuch://bucket", **SERIAL)
    with pytest.raises(UserError, match="contains no sweep"):
        read_specs(Store(tmp_path))
    with pytest.raises(UserError, match="no runs"):
        sweep(Plan(()), out=tmp_path, **SERIAL)


def test_without_ray_runs_are_executed_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "find_spec", lambda name: None)
    ended = sweep(tiny_plan(), out=tmp_path)
    assert len(ended.done) == 2
    assert "pip install 'cic[sweep]'" in capsys.readouterr().err
    with pytest.raises(UserError, match="needs Ray: pip install"):
        sweep(tiny_plan(more=("seed=7",)), out=tmp_path, address="auto")


# ---- interruption ----------------------------------------------------------------------------------------------


LONG = ("steps=240", "checkpoint_every=60")


def stop_once(spec: RunSpec, path: Path, source: Path | None) -> None:
    """Ctrl-C in the middle of the first run."""

    def interrupt() -> None:
        while not list((path / "checkpoints").glob("0*")):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    if not (path / "config.json").exists():
        threading.Thread(target=interrupt, daemon=True).start()
    train_run(spec, path, source)


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_an_interrupted_sweep_resumes_bit_exactly(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the settings of laptop scale: a finetuning reads the replay buffer and the library of its pre-training."""
    plan = tiny_plan(more=(*LONG, *LAPTOP))
    assert len(sweep(plan, out=tmp_path / "whole", **SERIAL).done) == 2
    out = str(tmp_path / "parts") if where == "folder" else f"memory://{uuid4().hex}"
    with monkeypatch.context() as interrupted:
        interrupted.setattr(worker, "train_run", stop_once)
        with pytest.raises(Interrupted, match=r"2 runs are left; the same command continues"):
            sweep(plan, out=out, **SERIAL)
    store = Store(out)
    assert {run.state for run in read_status(store)} == {"waiting"}
    assert len(sweep(plan, out=out, **SERIAL).done) == 2
    if where == "memory":
        store.fs.get(store.root, str(tmp_path / "parts"), recursive=True)
    assert all_result_files(tmp_path / "parts") == all_result_files(tmp_path / "whole")


@pytest.mark.slow
def test_a_url_contains_no_incomplete_checkpoint(tmp_path: Path) -> None:
    """Whenever a node dies, what it has uploaded is resumed bit-exactly."""
    (spec, _) = resolve(tiny_plan(more=LONG))
    train_run(spec, tmp_path / "whole", None)
    source = tmp_path / "node"
    source.mkdir()
    copies: list[Path] = []

    class Recording(Store):
        """Copies the store at every fourth access, as another node would find it."""

        accesses = 0

        def full(self, name: str) -> str:
            self.accesses += 1
            if self.accesses % 4 == 0 and self.fs.exists(self.root):
                copy = tmp_path / f"copy{len(copies)}"
                self.fs.get(self.root, str(copy), recursive=True)
                copies.append(copy)
            return super().full(name)

    remote = RemoteRun(Recording(f"memory://{uuid4().hex}"), spec.folder, source)
    with remote.uploading("driver"):
        train_run(spec, source, None)
    assert len(copies) >= 3
    for number, copy in enumerate(copies[:: max(1, len(copies) // 6)]):
        local = tmp_path / f"local{number}"
        local.mkdir()
        RemoteRun(Store(f"file://{copy}"), spec.folder, local).download()
        if not (local / "result.json").exists():
            train_run(spec, local, None)
        assert result_files(local) == result_files(tmp_path / "whole")


# ---- the command line ------------------------------------------------------------------------------------------


def call(*args: object) -> int:
    return cli.main([str(arg) for arg in args])


def test_the_command_from_options_to_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, out = tmp_path / "plan.json", tmp_path / "out"
    options = ["--objectives", "cic", "--domains", "gridworld", "--seeds", "0-1", "--scale", "smoke"]
    assert call("sweep", *options, "--set", "steps=120", "hidden=16", "--plan", plan) == 0
    assert len(json.loads(plan.read_text())["runs"]) == 2
    assert call("sweep", plan, "--out", out, "--slots", 1) == 0
    assert "2 of 2 runs done, 0 failed" in capsys.readouterr().out
    assert call("sweep", "--status", out) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["method", "domain", "waiting", "running", "done", "failed", "steps/s", "left"]
    assert lines[1].split() == ["cic", "gridworld", "-", "-", "2", "-", "-", "0", "s"]
    assert call("sweep", plan, "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 runs: 2 pre-trainings, 0 finetunings"
    assert "core-hours" in lines[1]


def test_exit_code_1_if_a_run_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = Entry("bad", "pretrain", {"domain": "gridworld", "scale": "smoke", "device": "cuda:99"})
    plan = Plan((*tiny_plan().runs, bad))
    plan.write(tmp_path / "plan.json")
    assert call("sweep", tmp_path / "plan.json", "--out", tmp_path / "out", "--slots", 1, "--quiet") == 1
    printed = capsys.readouterr().out
    assert "2 of 3 runs done, 1 failed" in printed
    assert "failed: bad" in printed
    assert 'the device "cuda:99" cannot be used here' in printed


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give either a plan or --objectives and --domains"),
        (["--objectives", "cic"], "--objectives and --domains must be given together"),
        (["--objectives", "cci", "--domains", "walker"], '"cci"'),
        (["--objectives", "cic", "--domains", "walker", "--seeds", "x"], "seeds are numbers"),
        (["--objectives", "cic", "--domains", "walker", "--set", "lr"], "NAME=VALUE"),
        (["--objectives", "cic", "--domains", "walker", "--slots", "0"], "slots must be at least 1"),
        (["--scratch"], "--scratch needs --tasks"),
        (["none.json"], "none.json cannot be read"),
        (["none.json", "--seeds", "0-3"], "--seeds is for a new plan"),
        (["--status", "nowhere"], "contains no sweep"),
        (["--objectives", "cic", "--domains", "walker", "--address", "nohost"], "HOST:PORT"),
    ],
)
def test_an_error_of_the_user_is_one_line(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("sweep", *args) == 2
    error = capsys.readouterr().err.splitlines()
    assert message in error[-1]


def test_short_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pretrain --seeds` and `finetune RUN… --task DOMAIN`."""
    monkeypatch.setattr(driver, "find_spec", lambda name: None)  # without Ray, which other tests use
    small = ["--scale", "smoke", "--hidden", 16, "--batch", 16, "--quiet", "--warmup", 40]
    out = tmp_path / "out"
    assert call("pretrain", "--domain", "gridworld", "--seeds", "0-1", "--steps", 80, *small, "--out", out) == 0
    runs = sorted(out.glob("pretrain-cic-gridworld-s?-*"))
    assert [cic.runs.folder.Run(run).config["seed"] for run in runs] == [0, 1]
    assert [cic.runs.folder.Run(run).config["learning"]["hidden"] for run in runs] == [16, 16]
    more = ["--steps", 80, "--warmup", 40, "--eval-every", 80, "--eval-episodes", 1, "--quiet"]
    assert call("finetune", *runs, "--task", "gridworld", *more, "--out", out) == 0
    tuned = [cic.runs.folder.Run(run) for run in out.glob("finetune-*")]
    assert len(tuned) == 2 * 4
    assert {(run.config["seed"], run.config["pretrain_seed"]) for run in tuned} == {(0, 0), (1, 1)}
    assert {run.config["eval_episodes"] for run in tuned} == {1}


def test_the_status_needs_no_torch(swept: Path) -> None:
    code = "import sys; from cic import cli; cli.main(sys.argv[1:]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, "sweep", "--status", str(swept)], check=True, capture_output=True)
