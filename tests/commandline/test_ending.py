"""How a command ends when somebody ends it: Ctrl-C at any moment, a pipe that closes, a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cic
from cic import cli
from cic.commandline.command_runs import next_command
from cic.runs import liveness
from cic.runs.folder import Run
from cic.runs.records import read_run

CIC = [sys.executable, "-m", "cic.cli"]
TINY = ["--scale", "smoke", "--hidden", "8", "--batch", "8"]


@pytest.mark.parametrize("delay", [0.1, 0.25, 0.45, 0.8, 1.2])
def test_ctrl_c_in_the_first_second_is_one_line(delay: float, tmp_path: Path) -> None:
    """Before the run exists there is nothing to save, and nothing to explain; after that it is saved."""
    line = [*CIC, "pretrain", "--domain", "walker", "--out", tmp_path / "run", "--quiet"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            process.kill()  # else it would train on to its end, and the test with it
            raise
    if "Traceback" in said:  # Python's own: it ends by the signal then
        assert not re.search(r'cli\.py", line \d+, in main', said), "only before anything of ours runs"
        return
    if process.returncode == -signal.SIGINT:
        assert said == ""  # Python itself had not started yet
        return
    assert process.returncode == 130, said
    assert said.count("\n") == 1
    assert said.startswith("cic: ")


def test_output_that_nobody_reads_to_the_end(tmp_path: Path) -> None:
    for words in (["-h"], ["pretrain", "--help"], ["envs"]):
        line = " ".join([*CIC, *words])
        shell = f"{line} | (read first; exec <&-; sleep 0.3); echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
        assert done.stderr == "", done.stderr
        assert done.stdout.strip() == "0"


def test_a_log_pipe_that_breaks_does_not_take_the_run_with_it(tmp_path: Path) -> None:
    """`cic pretrain … 2>&1 | tee log`, and tee is killed."""
    run = tmp_path / "run"
    words = ["pretrain", "--domain", "gridworld", "--steps", "300", "--log-every", "20", "--out", str(run), *TINY]
    with subprocess.Popen([*CIC, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert "step" in process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=300) == 0
    assert json.loads((run / "result.json").read_text())["step"] == 300


def test_a_run_that_was_killed_is_dead_and_names_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "killed"
    words = ["pretrain", "--domain", "gridworld", "--steps", "1e6", "--compile", "off", "--out", str(run), *TINY]
    with subprocess.Popen([*CIC, *words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "step 200" not in process.stderr.readline():
            pass
        alive = read_run(run)
        assert alive.state == "running"
        assert next_command(alive) == "", "it is being written"
        process.kill()
        process.wait()
    assert json.loads((run / "status.json").read_text())["state"] == "running", "it could not say otherwise"
    dead = read_run(run)
    assert dead.state == "dead"
    assert next_command(dead) == f"cic pretrain --resume {run}"
    assert cli.main(["runs", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"killed +CIC +gridworld +dead +[\d,]+ of 1,000,000", said)
    assert f"  cic pretrain --resume {run}" in said


def test_the_heartbeat() -> None:
    status = {"host": os.uname().nodename, "pid": os.getpid(), "updated": "2000-01-01T00:00:00+00:00"}
    now = {"updated": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())}
    assert not liveness.is_dead(status | now)
    assert liveness.is_dead(status), "so old that its number is another's by now"
    assert liveness.is_dead(status | now | {"pid": 2**22 + 1})
    assert not liveness.is_dead(status | now | {"host": "elsewhere", "pid": 2**22 + 1})
    assert liveness.is_dead(status | {"host": "elsewhere"})
    for strange in ({"pid": "x"}, {"host": 3}, {"updated": "yesterday"}, {"updated": None}):
        assert not liveness.is_dead(status | strange), "who tells nothing is not declared dead"
    assert not liveness.is_dead({})


def test_signs_of_life_come_without_log_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[tuple[str, int]] = []
    real = Run.write_status

    def note(self: Run, state: str, step: int, message: str = "") -> None:
        beats.append((state, step))
        real(self, state, step, message)

    monkeypatch.setattr(Run, "write_status", note)
    monkeypatch.setattr("cic.training.loop.HEARTBEAT", 0.0)
    cic.pretrain(
        "gridworld", "rnd", out=tmp_path / "run", scale="smoke", hidden=8, steps=110, log_every=1000, quiet=True
    )
    assert {step for state, step in beats if state == "running"} == set(range(111)), "one each step, at this rate"
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["pid"], status["host"]) == ("finished", os.getpid(), os.uname().nodename)


def test_runs_lists_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"scale": "smoke", "hidden": 8, "quiet": True}
    before = cic.pretrain("gridworld", "rnd", out=tmp_path / "a run", steps=110, **settings).path
    cic.finetune(before, "reach_top_left", out=tmp_path / "tuned", steps=110, **settings)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["runs", str(tmp_path)]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert re.fullmatch(r"a run +RND +gridworld +finished +110", lines[1])
    assert re.fullmatch(r"tuned +RND +gridworld-reach_top_left +finished +110", lines[2])
    assert max(map(len, lines[:3])) <= 80
    assert f"  cic finetune '{before}' --task TASK" in lines
    assert f"  cic evaluate {tmp_path / 'tuned'}" in lines
    assert "broken" in said.err
    assert cli.main(["runs", str(tmp_path), "--no-commands"]) == 0
    assert "next" not in capsys.readouterr().out
    assert cli.main(["runs", str(tmp_path / "nowhere")]) == 2
