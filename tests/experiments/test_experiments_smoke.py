"""Every experiment at smoke scale, from the command to its figure; killed on the way, it ends as if it had not been."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cic import cli
from cic.experiments.all_experiments import EXPERIMENTS

pytestmark = pytest.mark.slow
QUIET = ["--scale", "smoke", "--slots", "1", "--quiet"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all: runs that experiments share are done once."""
    return tmp_path_factory.mktemp("smoke") / "out"


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_runs_and_draws(name: str, out: Path) -> None:
    assert cli.main(["reproduce", name, *QUIET, "--out", str(out)]) == 0
    folder = out / name
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["missing"] == []
    assert [
        notice for notice in summary["notices"] if "checked runs are sound" not in notice
    ] == []  # after so few updates
    for ending in ("png", "pdf"):
        assert (folder / f"{name}.{ending}").stat().st_size > 5_000
    with open(folder / "data.csv", newline="") as file:
        data = list(csv.reader(file))
    assert len(data) > 1
    assert all(len(row) == len(data[0]) for row in data)


def test_adaptation_is_the_search_alone(out: Path) -> None:
    """No update: the policy is the pre-trained one to the bit, and all steps but the last are the search's."""
    assert cli.main(["reproduce", "adaptation", *QUIET, "--out", str(out)]) == 0
    runs = sorted((out / "runs").glob("finetune-cic-gridworld*"))
    assert len(runs) == 2 * 4 * 5
    for run in runs[:5]:
        before = load_file(run / "inherited" / "agent.safetensors")
        after = load_file(sorted(run.glob("checkpoints/*"))[-1] / "agent.safetensors")
        actor = [name for name in before if "actor" in name]
        assert actor
        assert all(torch.equal(before[name], after[name]) for name in actor)
        assert json.loads((run / "result.json").read_text())["step"] == 201


def test_all_on_one_page(out: Path) -> None:
    assert cli.main(["reproduce", "all", *QUIET, "--out", str(out)]) == 0
    page = (out / "index.html").read_text()
    for experiment in EXPERIMENTS.values():
        assert f'id="{experiment.name}"' in page
        assert experiment.title in page
    assert (
        page.count("<strong>This reproduction:</strong>") == page.count("<strong>Paper:</strong>") == len(EXPERIMENTS)
    )


def test_killed_it_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """SIGKILL in the middle of a run, and again after some; then the figure of a run that nobody disturbed."""
    command = ["reproduce", "projection", *QUIET, "--seeds", "0,1", "--out"]
    assert cli.main([*command, str(tmp_path / "whole")]) == 0
    broken = tmp_path / "broken"
    for wanted in (1, 3):
        process = subprocess.Popen([sys.executable, "-m", "cic.cli", *command, str(broken)], start_new_session=True)
        end = time.monotonic() + 120
        while len(list(broken.glob("runs/pretrain-*/checkpoints/*"))) < wanted and time.monotonic() < end:
            time.sleep(0.01)
        assert process.poll() is None, "it was over before it was killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert cli.main([*command, str(broken)]) == 0
    for name in ("data.csv", "projection.png"):
        assert (broken / "projection" / name).read_bytes() == (tmp_path / "whole" / "projection" / name).read_bytes()
