"""Metrics beyond the run's own files: TensorBoard with config and timing, Weights & Biases without a network."""

from __future__ import annotations

import errno
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cic
from cic.learning.agent import Agent
from cic.training.progress import Reporter, Speed

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 8, "batch": 8, "steps": 120, "log_every": 40, "quiet": True}


def test_tensorboard_contains_metrics_config_and_speed(tmp_path: Path) -> None:
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


def test_progress_shows_the_logged_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loud = SMALL | {"quiet": False}
    before = cic.pretrain("gridworld", "rnd", out=tmp_path / "before", **SMALL).path
    capsys.readouterr()
    path = cic.finetune(before, "reach_top_left", out=tmp_path / "run", eval_every=30, **loud).path
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"RND gridworld-reach_top_left  starts from {before} at step 120"
    shown = [int(line.split("step ")[1].split("/")[0]) for line in said[1:]]
    logged = [json.loads(line)["step"] for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert shown == logged


def test_progress_ends_at_the_last_step_of_parallel_environments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = SMALL | {"quiet": False, "steps": 130, "num_envs": 40, "warmup": 40}
    cic.pretrain("gridworld", "rnd", out=tmp_path / "run", **settings)
    said = capsys.readouterr().err
    assert "step 160/160" in said
    assert "-0.0" not in said
    assert "left" not in said.splitlines()[-1], "no time is left at the end"


class Broken:
    encoding = "utf-8"

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    def isatty(self) -> bool:
        return False


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_speed_is_that_of_the_last_half_minute() -> None:
    clock = Clock()
    speed = Speed(0, clock)
    assert speed.rate == 0
    step = 0
    for steps_per_second, seconds in ((1000, 20), (10, 60), (200, 40)):
        for _ in range(10 * seconds):
            clock.now += 0.1
            step += steps_per_second // 10
            speed.advance(step)
        if seconds > 30:
            assert speed.rate == pytest.approx(steps_per_second, rel=0.02)


def test_speed_after_a_restart_ignores_what_was_before() -> None:
    clock = Clock()
    speed = Speed(0, clock)
    clock.now += 45  # a compilation
    speed.advance(1)
    speed.restart(1)
    clock.now += 1
    speed.advance(51)
    assert speed.rate == pytest.approx(50)


def test_time_left_after_the_compilation_is_that_of_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    """100 updates per second for two minutes, after a warm-up without updates and 40 seconds of compilation."""
    clock = Clock()
    reporter = Reporter("run", 14_000, 0, clock=clock)
    for step in range(1, 2_001):
        clock.now += 0.001
        reporter.advance(step)
    clock.now += 40
    reporter.restart_clock()
    reporter.note(2_000)
    for step in range(2_001, 2_201):
        clock.now += 0.01
        reporter.advance(step)
    reporter.note(2_200, reward=1.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "run  step 2,000/14,000"
    assert lines[1] == "run  step 2,200/14,000  100 steps/s  2.0 min left  reward 1"


def test_compilation_does_not_count_in_the_speed_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first update takes an hour by the clock; the speed that is logged afterwards does not include it."""
    clock, update = Clock(), Agent.update

    def slow(self: Agent, *args: Any, **kwargs: Any) -> Any:
        clock.now += 3600 if clock.now < 3600 else 0.02
        return update(self, *args, **kwargs)

    monkeypatch.setattr(Agent, "update", slow)
    monkeypatch.setattr("cic.training.loop.Reporter", functools.partial(Reporter, clock=clock))
    settings = SMALL | {"steps": 400, "warmup": 100, "update_every": 2}
    path = cic.pretrain("gridworld", "rnd", out=tmp_path / "run", **settings).path
    lines = [json.loads(line) for line in (path / "timing.jsonl").read_text().splitlines()]
    assert lines[-1]["time/steps_per_second"] == pytest.approx(100, rel=0.05)


def test_reporter_without_a_reader_becomes_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Broken())
    with Reporter("title", 100, 0) as reporter:
        reporter.say("hello")
        reporter.note(10, reward=1.0)
        assert reporter.quiet


def test_full_disk_under_tensorboard_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", full)
    with pytest.raises(OSError, match=r"No space left on device.*tensorboard"):
        cic.pretrain("gridworld", out=tmp_path / "run", scale="smoke", quiet=True)
    assert "Traceback" not in capfd.readouterr().err
