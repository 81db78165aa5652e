"""Sweeps in this process: done once, continued to the bit, honest about failures; in a folder and behind a URL."""

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
from make_plans import outcome_files, outcomes, tiny_plan

import cic
from cic import cli
from cic.core.errors import Interrupted, UserError
from cic.runs import records
from cic.sweep import run as run_module
from cic.sweep.completion import make_jobs
from cic.sweep.jobs import Job, read_jobs
from cic.sweep.leases import take
from cic.sweep.mirror import Mirror
from cic.sweep.plan import Entry, Plan
from cic.sweep.run import Means, run_plan
from cic.sweep.status import read_status, rows, total
from cic.sweep.storage import FolderStorage, Storage, UrlStorage, open_storage
from cic.sweep.work import train_run

SERIAL = Means(slots=1, quiet=True, lease=5)
FAST = Means(slots=1, quiet=True, lease=1)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pre-trainings, a finetuning each."""
    out = tmp_path_factory.mktemp("swept")
    assert len(run_plan(tiny_plan(seeds=2), str(out), SERIAL).done) == 4
    return out


def test_a_run_of_a_sweep_is_the_run_of_the_api(swept: Path, tmp_path: Path) -> None:
    first = next(entry for entry in tiny_plan().runs if entry.kind == "pretrain")
    made = cic.pretrain(out=tmp_path / "p", quiet=True, **first.config)
    (mine,) = swept.glob("pretrain-cic-gridworld-s0-*")
    assert outcome_files(mine) == outcome_files(made.path)
    then = next(entry for entry in tiny_plan().runs if entry.kind == "finetune")
    tuned = cic.finetune(made.path, out=tmp_path / "f", quiet=True, **then.config)
    (mine,) = swept.glob("finetune-cic-*-s0-*")
    assert outcome_files(mine) == outcome_files(tuned.path)
    assert (mine / "log.txt").read_text().count("step") >= 1


def test_what_is_done_is_not_done_again(swept: Path) -> None:
    def refuse(job: Job, path: Path, source: Path | None) -> None:
        raise AssertionError("was done already")

    assert len(run_plan(tiny_plan(seeds=2), str(swept), SERIAL, train=refuse).done) == 4


def test_another_plan_shares_what_is_the_same(swept: Path) -> None:
    trained: list[str] = []

    def note(job: Job, path: Path, source: Path | None) -> None:
        trained.append(job.name)
        (path / "result.json").write_text("{}")

    both = "gridworld-reach_top_left"
    more = Plan((*tiny_plan(seeds=2, tasks=both).runs, Entry("new", "pretrain", {"domain": "walker"})))
    run_plan(more, str(swept), SERIAL, train=note)
    assert trained == ["new"]


def test_the_status_is_in_the_files(swept: Path) -> None:
    progress = [run for run in read_status(FolderStorage(swept)) if run.job.domain == "gridworld"]
    whole = total(rows(progress))
    assert (whole.done, whole.waiting, whole.running, whole.failed) == (4, 0, 0, 0)
    assert whole.seconds_left == 0


def test_a_report_reads_the_folder_as_it_is(swept: Path) -> None:
    runs, problems = records.read([swept])
    assert len([run for run in runs if run.finished and run.domain == "gridworld"]) == 4
    assert problems == []


# ---- failures --------------------------------------------------------------------------------------------------


def fail_first(job: Job, path: Path, source: Path | None) -> None:
    if job.kind == "pretrain" and job.config["seed"] == 0:
        print("line before the end")
        raise RuntimeError("this one always fails")
    train_run(job, path, source)


def test_a_run_that_fails_costs_only_what_needs_it(tmp_path: Path) -> None:
    ended = run_plan(tiny_plan(seeds=2), str(tmp_path), SERIAL, train=fail_first)
    assert sorted(job.config["seed"] for job in ended.done) == [1, 1]
    ((job, outcome),) = ended.failed
    assert outcome.message == "RuntimeError: this one always fails"
    assert "line before the end" in outcome.log
    assert [blocked.kind for blocked in ended.blocked] == ["finetune"]
    summary = ended.summary(str(tmp_path))
    assert "2 of 4 runs done, 1 failed" in summary
    assert f"failed: {job.name}" in summary
    assert f"not begun, because a run before them failed: {ended.blocked[0].name}" in summary
    found = {run.job.name: run for run in read_status(FolderStorage(tmp_path))}
    assert (found[job.name].state, found[job.name].message) == ("failed", outcome.message)
    again = run_plan(tiny_plan(seeds=2), str(tmp_path), SERIAL)  # what failed gets another chance
    assert len(again.done) == 4


def test_a_storage_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        run_plan(tiny_plan(), str(tmp_path / "file"), SERIAL)
    with pytest.raises(UserError, match="cannot be opened"):
        run_plan(tiny_plan(), "nosuch://bucket", SERIAL)
    with pytest.raises(UserError, match="holds no sweep"):
        read_jobs(FolderStorage(tmp_path))
    with pytest.raises(UserError, match="no runs"):
        run_plan(Plan(()), str(tmp_path), SERIAL)


def test_without_the_extra_runs_go_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_module, "find_spec", lambda name: None)
    ended = run_plan(tiny_plan(), str(tmp_path), Means())
    assert len(ended.done) == 2
    assert "pip install 'cic[sweep]'" in capsys.readouterr().err
    with pytest.raises(UserError, match="needs Ray: pip install"):
        run_plan(tiny_plan(more=("seed=7",)), str(tmp_path), Means(address="auto"))


# ---- stopping and moving ---------------------------------------------------------------------------------------


def stop_once(job: Job, path: Path, source: Path | None) -> None:
    """Ctrl-C in the middle of the first run."""
    if not (path / "config.json").exists():
        threading.Thread(target=_interrupt_at_checkpoint, args=(path,), daemon=True).start()
    train_run(job, path, source)


def _interrupt_at_checkpoint(path: Path) -> None:
    while not list((path / "checkpoints").glob("0*")):
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)


LONG = ("steps=240", "checkpoint_every=60")


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_stopped_and_continued_is_the_same_to_the_bit(where: str, tmp_path: Path) -> None:
    plan = tiny_plan(more=LONG)
    run_plan(plan, str(tmp_path / "whole"), SERIAL)
    out = str(tmp_path / "parts") if where == "folder" else f"memory://{uuid4().hex}"
    with pytest.raises(Interrupted, match=r"2 runs are left; the same command continues"):
        run_plan(plan, out, SERIAL, train=stop_once)
    storage = open_storage(out)
    assert {run.state for run in read_status(storage)} == {"waiting"}
    assert len(run_plan(plan, out, SERIAL).done) == 2
    if isinstance(storage, UrlStorage):
        storage.fs.get(storage.root, str(tmp_path / "parts"), recursive=True)
    assert outcomes(tmp_path / "parts") == outcomes(tmp_path / "whole")


@pytest.mark.slow
def test_a_url_never_holds_half_a_checkpoint(tmp_path: Path) -> None:
    """Whatever the moment at which a node dies, what it leaves in the store can be continued to the same bits."""
    plan = tiny_plan(more=LONG)
    (job, _) = make_jobs(plan)
    train_run(job, tmp_path / "whole", None)
    source = tmp_path / "node"
    source.mkdir()
    copies: list[Path] = []

    class Recording(UrlStorage):
        """Copies the store after every fourth write, as another node would find it."""

        writes = 0

        def full(self, name: str) -> str:
            self.writes += 1
            if self.writes % 4 == 0 and self.fs.exists(self.root):
                copy = tmp_path / f"copy{len(copies)}"
                self.fs.get(self.root, str(copy), recursive=True)
                copies.append(copy)
            return super().full(name)

    storage = Recording(f"memory://{uuid4().hex}")
    mirror = Mirror(storage, job.folder, source)
    with mirror.kept_up():
        train_run(job, source, None)
    assert len(copies) >= 3
    for number, copy in enumerate(copies[:: max(1, len(copies) // 3)]):
        local = tmp_path / f"local{number}"
        local.mkdir()
        Mirror(open_storage_of(copy), job.folder, local).pull()
        if not (local / "result.json").exists():
            train_run(job, local, None)
        assert outcome_files(local) == outcome_files(tmp_path / "whole")


def open_storage_of(folder: Path) -> UrlStorage:
    return UrlStorage(f"file://{folder}")


@pytest.fixture
def held(tmp_path: Path) -> tuple[Storage, Any]:
    """A storage in which somebody on another machine has the lease of the plan's first run."""
    storage = FolderStorage(tmp_path)
    job = make_jobs(tiny_plan())[0]
    lease = take(storage, job.folder, "somebody", seconds=3.0)
    assert lease is not None
    return storage, lease


def test_two_sweeps_do_not_do_the_same_run(held: tuple[Storage, Any]) -> None:
    """Ours waits while the other renews its lease, and takes over when that has expired."""
    storage, lease = held
    began = time.time()
    started: list[float] = []

    def note(job: Job, path: Path, source: Path | None) -> None:
        started.append(time.time())
        (path / "result.json").write_text("{}")

    threading.Timer(1.0, lease.renew).start()
    run_plan(tiny_plan(), storage.where, FAST, train=note)
    assert len(started) == 2
    assert started[0] > began + 1.0 + 3.0


def test_what_another_sweep_has_done_counts(held: tuple[Storage, Any]) -> None:
    storage, lease = held
    trained: list[str] = []

    def note(job: Job, path: Path, source: Path | None) -> None:
        trained.append(job.kind)
        (path / "result.json").write_text("{}")

    def finish() -> None:
        storage.write(f"{lease.folder}/result.json", b"{}")
        lease.release()

    threading.Timer(0.5, finish).start()
    assert len(run_plan(tiny_plan(), storage.where, FAST, train=note).done) == 2
    assert trained == ["finetune"]


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
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["method", "domain", "waiting", "running", "done", "failed", "steps/s", "left"]
    assert said[1].split() == ["cic", "gridworld", "-", "-", "2", "-", "-", "0", "s"]
    assert call("sweep", plan, "--dry-run") == 0
    said = capsys.readouterr().out
    assert said.startswith("2 runs: 2 pre-trainings, 0 finetunings")
    assert [line.split()[0] for line in said.splitlines()[-4:]] == ["1", "8", "64", "512"]


def test_exit_code_1_if_a_run_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = Entry("bad", "pretrain", {"domain": "gridworld", "scale": "smoke", "device": "cuda:99"})
    plan = Plan((*tiny_plan().runs, bad))
    plan.write(tmp_path / "plan.json")
    assert call("sweep", tmp_path / "plan.json", "--out", tmp_path / "out", "--slots", 1, "--quiet") == 1
    said = capsys.readouterr().out
    assert "2 of 3 runs done, 1 failed" in said
    assert "failed: bad" in said
    assert 'the device "cuda:99" cannot be used here' in said


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "give either a plan or --objectives and --domains"),
        (["--objectives", "cic"], "--objectives and --domains go together"),
        (["--objectives", "cci", "--domains", "walker"], '"cci"'),
        (["--objectives", "cic", "--domains", "walker", "--seeds", "x"], "seeds are numbers"),
        (["--objectives", "cic", "--domains", "walker", "--set", "lr"], "NAME=VALUE"),
        (["--objectives", "cic", "--domains", "walker", "--slots", "0"], "slots must be at least 1"),
        (["--scratch"], "--scratch needs --tasks"),
        (["none.json"], "none.json cannot be read"),
        (["none.json", "--seeds", "0-3"], "--seeds makes a plan"),
        (["--status", "nowhere"], "holds no sweep"),
        (["--objectives", "cic", "--domains", "walker", "--address", "nohost"], "HOST:PORT"),
    ],
)
def test_a_mistake_is_one_sentence(
    args: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("sweep", *args) == 2
    error = capsys.readouterr().err.splitlines()
    assert said in error[-1]


def test_short_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pretrain --seeds` and `finetune RUN… --task DOMAIN`."""
    monkeypatch.setattr(run_module, "find_spec", lambda name: None)  # one after another: Ray is tested elsewhere
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
