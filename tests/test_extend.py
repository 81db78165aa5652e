"""A run that is made longer ends with the bits of one that was meant to be that long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import WatchedEnv, make_loop, pretrain_config, stop

import cic
from cic import cli, envs
from cic.core.errors import Interrupted, UserError
from cic.runs.folder import Run

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 16, "batch": 16, "warmup": 40, "log_every": 20, "quiet": True}
TASK = "gridworld-reach_top_left"


def weights(path: Path, step: int) -> bytes:
    return (path / "checkpoints" / f"{step:09d}" / "agent.safetensors").read_bytes()


def assert_same(path: Path, other: Path, step: int) -> None:
    for name in ("metrics.jsonl", "result.json"):
        assert (path / name).read_bytes() == (other / name).read_bytes()
    for name in ("agent", "optimisers", "replay", "env", "loop"):
        file = f"checkpoints/{step:09d}/{name}.safetensors"
        assert (path / file).read_bytes() == (other / file).read_bytes(), name


@pytest.mark.parametrize("checkpoint_every", [30, 50, 1000], ids=["odd", "even", "none before the end"])
@pytest.mark.parametrize("copies", [1, 3])
def test_a_pretraining(checkpoint_every: int, copies: int, tmp_path: Path) -> None:
    settings = {"checkpoint_every": checkpoint_every, "num_envs": copies, "skill_dim": 4, **SMALL}
    long = cic.pretrain("gridworld", out=tmp_path / "long", steps=171, **settings).path
    short = cic.pretrain("gridworld", out=tmp_path / "short", steps=100, **settings).path
    assert cic.resume(short, steps=171, quiet=True).result["step"] == 171
    assert_same(short, long, 171)
    header = json.loads((short / "config.json").read_text())
    assert header["config"]["steps"] == 171
    assert header["extended"] == [100]


@pytest.mark.parametrize("copies", [1, 3])
def test_a_pretraining_that_has_made_its_library(copies: int, tmp_path: Path) -> None:
    """The library is made at the end: what is longer learns on from before the shorter one's."""
    library = {"library": 3, "library_starts": 2, "library_steps": 8}
    settings = {"checkpoint_every": 30, "num_envs": copies, "skill_dim": 4, **SMALL, **library}
    long = cic.pretrain("gridworld", out=tmp_path / "long", steps=171, **settings).path
    short = cic.pretrain("gridworld", out=tmp_path / "short", steps=102, **settings).path
    cic.resume(short, steps=171, quiet=True)
    assert_same(short, long, 171)
    made = "library/library.safetensors"
    assert (short / made).read_bytes() == (long / made).read_bytes()


@pytest.mark.parametrize("own", [{"eval_every": 35}, {"check_steps": 36}], ids=["evaluations elsewhere", "checked"])
def test_a_finetuning(own: dict[str, int], tmp_path: Path) -> None:
    settings = {"checkpoint_every": 20, "trial_steps": 10, **SMALL, **own}
    skills = cic.pretrain("gridworld", out=tmp_path / "skills", steps=60, skill_dim=4, **SMALL).path
    long = cic.finetune(skills, TASK, out=tmp_path / "long", steps=150, **settings).path
    short = cic.finetune(skills, TASK, out=tmp_path / "short", steps=110, **settings).path
    cic.resume(short, steps=150, quiet=True)
    assert_same(short, long, 150)


def test_a_stopped_run_and_one_that_was_killed_before_its_result(tmp_path: Path) -> None:
    config = pretrain_config(steps=100, checkpoint_every=30)
    make_loop(tmp_path / "long", "pretrain", pretrain_config(steps=140, checkpoint_every=30)).train()
    env = WatchedEnv(envs.make("gridworld"), events={75: stop()})
    with pytest.raises(Interrupted):
        make_loop(tmp_path / "stopped", "pretrain", config, env).train()
    make_loop(tmp_path / "killed", "pretrain", config).train()
    (tmp_path / "killed" / "result.json").unlink()
    for name in ("stopped", "killed"):
        cic.resume(tmp_path / name, steps=140, quiet=True)
        assert_same(tmp_path / name, tmp_path / "long", 140)


def test_twice(tmp_path: Path) -> None:
    settings = {"checkpoint_every": 30, **SMALL}
    long = cic.pretrain("gridworld", "rnd", out=tmp_path / "long", steps=140, **settings).path
    path = cic.pretrain("gridworld", "rnd", out=tmp_path / "run", steps=60, **settings).path
    cic.resume(path, steps=100, quiet=True)
    cic.resume(path, steps=140, quiet=True)
    assert_same(path, long, 140)
    assert Run(path).about["extended"] == [60, 100]


def test_only_longer_and_only_the_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = cic.pretrain("gridworld", "rnd", out=tmp_path / "run", steps=60, **SMALL).path
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    for steps in (60, 59, 0):
        with pytest.raises(UserError, match="has 60 steps already: --steps must be more"):
            cic.resume(path, steps=steps)
    with pytest.raises(UserError, match="is finished already: give it more --steps"):
        cic.resume(path)
    assert cli.main(["pretrain", "--resume", str(path), "--steps", "80", "--seed", "2"]) == 2
    assert "drop --seed" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != ".lock"} == {
        file: content for file, content in before.items() if file.name != ".lock"
    }
    assert cli.main(["pretrain", "--resume", str(path), "--steps", "0.08k", "--quiet"]) == 0
    assert "step 80" in capsys.readouterr().out
