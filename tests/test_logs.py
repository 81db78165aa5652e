"""Metrics beyond the run's own files: TensorBoard with config and timing, Weights & Biases without a network."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cic
from cic.training.progress import Reporter

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 8, "batch": 8, "steps": 120, "log_every": 40, "quiet": True}


def test_tensorboard_has_the_metrics_the_config_and_the_speed(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = cic.pretrain("gridworld", "rnd", out=tmp_path / "run", **SMALL).path
    board = EventAccumulator(str(path / "tensorboard"))
    board.Reload()
    tags = board.Tags()
    logged = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [event.step for event in board.Scalars("coverage/fraction")] == [line["step"] for line in logged]
    assert [event.step for event in board.Scalars("time/steps_per_second")] == [line["step"] for line in logged]
    assert "time/unix" not in tags["scalars"]
    (text,) = board.Tensors("config/text_summary")
    shown = text.tensor_proto.string_val[0].decode()
    assert "| learning.hidden | 8 |" in shown
    assert "| objective | rnd |" in shown


def test_weights_and_biases_offline(tmp_path: Path) -> None:
    """In a process of its own: it starts a service, and must not look for a network."""
    pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    words = ["pretrain", "--domain", "gridworld", "--objective", "rnd", "--scale", "smoke", "--hidden", "8", "--quiet"]
    words += ["--steps", "120", "--wandb", "--wandb-project", "maze", "--wandb-entity", "us", "--wandb-group", "g7"]
    words += ["--wandb-tags", "one", "two", "--out", str(tmp_path / "run")]
    code = (
        "import sys, wandb\n"
        "real = wandb.init\n"
        "def init(**given):\n"
        "    run = real(**given)\n"
        "    about = [run.project, run.entity, run.group, *run.tags, run.config['objective'], run.offline]\n"
        "    print('|'.join(map(str, about)))\n"
        "    return run\n"
        "wandb.init = init\n"
        "from cic import cli\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    env = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, env=env, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "maze|us|g7|one|two|rnd|True"
    (record,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-run.wandb")
    content = record.read_bytes()
    for word in (b"coverage/fraction", b"time/steps_per_second", b"learning"):
        assert word in content


# ---- progress --------------------------------------------------------------------------------------------------


def test_progress_says_the_step_that_is_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loud = SMALL | {"quiet": False}
    before = cic.pretrain("gridworld", "rnd", out=tmp_path / "before", **SMALL).path
    capsys.readouterr()
    path = cic.finetune(before, "reach_top_left", out=tmp_path / "run", eval_every=30, **loud).path
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"RND gridworld-reach_top_left  starts from {before} at step 120"
    shown = [int(line.split("step ")[1].split("/")[0]) for line in said[1:]]
    logged = [json.loads(line)["step"] for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert shown == logged


def test_progress_ends_where_copies_that_step_together_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = SMALL | {"quiet": False, "steps": 130, "num_envs": 40, "warmup": 40}
    cic.pretrain("gridworld", "rnd", out=tmp_path / "run", **settings)
    said = capsys.readouterr().err
    assert "step 160/160" in said
    assert "-0.0" not in said
    assert "left" not in said.splitlines()[-1], "at the end nothing is left"


class Broken:
    encoding = "utf-8"

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    def isatty(self) -> bool:
        return False


def test_a_reporter_without_a_reader_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Broken())
    with Reporter("title", 100, 0) as reporter:
        reporter.say("hello")
        reporter.note(10, reward=1.0)
        assert reporter.quiet


def test_a_disk_that_tensorboard_cannot_write_to_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", full)
    with pytest.raises(OSError, match=r"No space left on device.*tensorboard"):
        cic.pretrain("gridworld", out=tmp_path / "run", scale="smoke", quiet=True)
    assert "Traceback" not in capfd.readouterr().err
