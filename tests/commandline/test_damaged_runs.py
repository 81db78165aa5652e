"""Damaged run folders, runs that diverge and full disks: exit code 2 and one line, and nothing is lost."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cic import cli
from cic.runs.folder import FORMAT, Run

TASK = "gridworld-reach_top_left"
TINY = ["--scale", "smoke", "--hidden", "16", "--batch", "16", "--quiet"]
Error = Callable[..., str]


def test_a_run_of_the_first_version(copied: Path, error: Error) -> None:
    header = json.loads((copied / "config.json").read_text()) | {"format": 1, "version": "0.1.0"}
    (copied / "config.json").write_text(json.dumps(header))
    for line in (["evaluate", copied], ["pretrain", "--resume", copied], ["finetune", copied, "--task", TASK]):
        assert "was made by an earlier version of cic (0.1.0" in error(*line)


def test_a_run_of_a_newer_version(copied: Path, error: Error) -> None:
    header = json.loads((copied / "config.json").read_text()) | {"format": FORMAT + 1, "version": "99.0"}
    (copied / "config.json").write_text(json.dumps(header))
    for line in (["evaluate", copied], ["pretrain", "--resume", copied], ["finetune", copied, "--task", TASK]):
        message = error(*line)
        assert "newer version of cic (99.0" in message
        assert "upgrade" in message


def test_a_damaged_config(copied: Path, error: Error) -> None:
    os.truncate(copied / "config.json", 100)
    assert "config.json is not valid JSON" in error("evaluate", copied)


@pytest.mark.parametrize("harm", ["missing", "truncated"])
def test_damaged_weights_fall_back_with_a_warning_and_fail_without_others(
    copied: Path, harm: str, error: Error, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("000000120", "000000060"):
        weights = copied / "checkpoints" / folder / "agent.safetensors"
        if harm == "missing":
            weights.unlink()
        else:
            os.truncate(weights, 1000)
        if folder == "000000120":
            assert cli.main(["evaluate", str(copied), "--episodes", "1"]) == 0
            message = capsys.readouterr().err.splitlines()
            assert len(message) == 1
            assert message[0].startswith("cic: warning: ")
            assert "000000120 is damaged" in message[0]
    shutil.rmtree(copied / "milestones")
    (copied / "result.json").unlink()
    capsys.readouterr()
    assert cli.main(["evaluate", str(copied)]) == 2
    assert "is damaged" in capsys.readouterr().err.splitlines()[-1]
    assert cli.main(["pretrain", "--resume", str(copied)]) == 2
    assert "every checkpoint" in capsys.readouterr().err.splitlines()[-1]


def test_weights_of_another_shape(copied: Path, error: Error) -> None:
    header = json.loads((copied / "config.json").read_text())
    header["config"]["learning"]["hidden"] = 8
    (copied / "config.json").write_text(json.dumps(header))
    assert "do not fit its config" in error("evaluate", copied)


def test_a_config_changed_since_the_checkpoint(unfinished: Path, error: Error) -> None:
    header = json.loads((unfinished / "config.json").read_text())
    header["config"]["seed"] = 5
    (unfinished / "config.json").write_text(json.dumps(header))
    assert "was changed after" in error("pretrain", "--resume", unfinished)


def test_a_config_with_an_unknown_key(copied: Path, error: Error) -> None:
    header = json.loads((copied / "config.json").read_text())
    header["config"]["learning"]["hiden"] = 5
    (copied / "config.json").write_text(json.dumps(header))
    assert 'unknown field of config.learning "hiden"; did you mean "hidden"?' in error("evaluate", copied)


def save_pickle(checkpoint: Path, content: Any) -> None:
    """In place of the weights, with the right checksum."""
    torch.save(content, checkpoint / "agent.safetensors")
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["agent.safetensors"] = hashlib.sha256((checkpoint / "agent.safetensors").read_bytes()).hexdigest()
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "line", ["evaluate {run}", "finetune {run} --task " + TASK + " --hidden 16", "skills {run} --quiet"]
)
def test_a_pickle_where_weights_are_expected_is_refused_and_never_loaded(
    copied: Path, line: str, error: Error, tmp_path: Path
) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "sprung",)

    save_pickle(copied / "checkpoints" / "000000120", {"learner.actor.trunk.0.weight": Trap()})
    message = error(*line.format(run=copied).split())
    assert "agent.safetensors is not a readable safetensors file" in message
    assert not (tmp_path / "sprung").exists()


def test_a_pickle_is_not_resumed_from(unfinished: Path, error: Error) -> None:
    save_pickle(unfinished / "checkpoints" / "000000060", {})
    assert "never loads pickles" in error("pretrain", "--resume", unfinished)


def test_a_finetuning_that_lost_what_it_inherited(tuned: Path, tmp_path: Path, error: Error) -> None:
    path = Path(shutil.copytree(tuned, tmp_path / "run"))
    (path / "result.json").unlink()
    shutil.rmtree(path / "inherited")
    shutil.rmtree(path / "checkpoints")  # which have all that it learned since
    assert "inherited" in error("finetune", "--resume", path)


def test_two_processes_on_one_run(unfinished: Path, error: Error) -> None:
    hold = "run.lock(); print('held', flush=True); input()"
    code = f"from cic.runs.folder import Run; run = Run({str(unfinished)!r}); {hold}"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        before = {file: file.read_bytes() for file in unfinished.rglob("*") if file.is_file()}
        assert "another process is writing" in error("pretrain", "--resume", unfinished)
        assert {file: file.read_bytes() for file in unfinished.rglob("*") if file.is_file()} == before
        other.communicate("\n")
    assert cli.main(["pretrain", "--resume", str(unfinished), "--quiet"]) == 0


def test_a_run_without_a_checkpoint(unfinished: Path, error: Error) -> None:
    shutil.rmtree(unfinished / "checkpoints")
    shutil.rmtree(unfinished / "milestones")
    assert "has no checkpoint yet" in error("evaluate", unfinished)


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_a_run_that_diverges_stops_and_reports_it(verb: str, tmp_path: Path, error: Error) -> None:
    """`tests/test_training.py` has the cases; here is one that a user can bring about."""
    what = ["--domain", "gridworld"] if verb == "pretrain" else ["--scratch", "--task", TASK]
    wild = ["--lr", "1e30", "--warmup", "40", "--steps", "100", "--log-every", "10"]
    message = error(verb, *what, *wild, "--out", tmp_path / "run", *TINY)
    assert re.search(r"^(\S+ became (nan|-?inf) by|the policy's actions are not finite at) step \d\d: ", message), (
        message
    )
    assert "a smaller --lr usually helps" in message
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "failed"
    assert status["message"].replace("`lr`", "--lr") == message


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of its own, with little room."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", path], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("needs the right to mount a small file system")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.parametrize("spare", [0, 8_000, 60_000])
def test_a_full_disk_stops_the_run_cleanly_and_it_can_be_resumed(
    small_disk: Path, unfinished: Path, skills: Path, spare: int, error: Error
) -> None:
    """Full before the first line, while a line is written, or in the middle of a checkpoint."""
    path = Path(shutil.copytree(unfinished, small_disk / "run"))
    ballast = small_disk / "ballast"
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    ballast.write_bytes(b"x" * max(free - spare, 1))
    message = error("pretrain", "--resume", path, "--quiet")
    assert "full" in message or "No space left" in message
    assert "--resume" in message
    assert [int(folder.name) for folder in Run(path).checkpoints()] == [60]
    ballast.unlink()
    assert cli.main(["pretrain", "--resume", str(path), "--quiet"]) == 0
    assert (path / "metrics.jsonl").read_bytes() == (skills / "metrics.jsonl").read_bytes()
    weights = "checkpoints/000000120/agent.safetensors"
    assert (path / weights).read_bytes() == (skills / weights).read_bytes()


@pytest.mark.parametrize(
    "writer", ["cic.runs.storage.save_arrays", "cic.runs.jsonl_log.JsonlLog.write", "cic.runs.storage.os.fsync"]
)
def test_no_space_left_for_any_kind_of_file(
    unfinished: Path, skills: Path, writer: str, monkeypatch: pytest.MonkeyPatch, error: Error
) -> None:
    """The same where no file system can be mounted."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer, fail)
    message = error("pretrain", "--resume", unfinished, "--quiet")
    assert "full" in message or "No space left" in message
    assert "--resume" in message
    monkeypatch.undo()
    assert cli.main(["pretrain", "--resume", str(unfinished), "--quiet"]) == 0
    assert (unfinished / "metrics.jsonl").read_bytes() == (skills / "metrics.jsonl").read_bytes()


def test_a_full_disk_at_the_very_start(small_disk: Path, error: Error) -> None:
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    (small_disk / "ballast").write_bytes(b"x" * free)
    message = error("pretrain", "--domain", "gridworld", "--out", small_disk / "run", *TINY)
    assert "No space left" in message or "full" in message
