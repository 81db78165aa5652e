"""An extended run ends with the same bits as a run that was planned with that length."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
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


@pytest.mark.parametrize("checkpoint_every", [30, 50], ids=["odd", "even"])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_extended_pretraining(checkpoint_every: int, num_envs: int, tmp_path: Path) -> None:
    settings = {"checkpoint_every": checkpoint_every, "num_envs": num_envs, "skill_dim": 4, **SMALL}
    long = cic.pretrain("gridworld", out=tmp_path / "long", steps=171, **settings).path
    short = cic.pretrain("gridworld", out=tmp_path / "short", steps=100, **settings).path
    assert cic.resume(short, steps=171, quiet=True).result["step"] == 171
    assert_same(short, long, 171)
    header = json.loads((short / "config.json").read_text())
    assert header["config"]["steps"] == 171
    assert header["extended"] == [100]


@pytest.mark.parametrize("num_envs", [1, 3])
def test_extended_pretraining_with_a_library(num_envs: int, tmp_path: Path) -> None:
    """The library is collected at the end, so training continues from before it."""
    library = {"library": 3, "library_starts": 2, "library_steps": 8}
    settings = {"checkpoint_every": 30, "num_envs": num_envs, "skill_dim": 4, **SMALL, **library}
    long = cic.pretrain("gridworld", out=tmp_path / "long", steps=171, **settings).path
    short = cic.pretrain("gridworld", out=tmp_path / "short", steps=102, **settings).path
    cic.resume(short, steps=171, quiet=True)
    assert_same(short, long, 171)
    made = "library/library.safetensors"
    assert (short / made).read_bytes() == (long / made).read_bytes()


@pytest.mark.parametrize("own", [{"eval_every": 35}, {"check_steps": 36}], ids=["evaluations elsewhere", "checked"])
def test_extended_finetuning(own: dict[str, int], tmp_path: Path) -> None:
    settings = {"checkpoint_every": 20, "trial_steps": 10, **SMALL, **own}
    skills = cic.pretrain("gridworld", out=tmp_path / "skills", steps=60, skill_dim=4, **SMALL).path
    long = cic.finetune(skills, TASK, out=tmp_path / "long", steps=150, **settings).path
    short = cic.finetune(skills, TASK, out=tmp_path / "short", steps=110, **settings).path
    cic.resume(short, steps=150, quiet=True)
    assert_same(short, long, 150)


def test_extended_interrupted_and_killed_runs(tmp_path: Path) -> None:
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


def test_run_is_extended_twice(tmp_path: Path) -> None:
    settings = {"checkpoint_every": 30, **SMALL}
    long = cic.pretrain("gridworld", "rnd", out=tmp_path / "long", steps=140, **settings).path
    path = cic.pretrain("gridworld", "rnd", out=tmp_path / "run", steps=60, **settings).path
    cic.resume(path, steps=100, quiet=True)
    cic.resume(path, steps=140, quiet=True)
    assert_same(path, long, 140)
    assert Run(path).about["extended"] == [60, 100]


def snapshot(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != ".lock"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    return cic.pretrain("gridworld", "rnd", out=out, steps=60, checkpoint_every=30, **SMALL).path


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"steps": 60}, "has 60 steps already: set `steps` to a larger number"),
        ({"steps": 59}, "has 60 steps already"),
        ({"steps": 0}, "has 60 steps already"),
        ({"steps": 80.0}, "steps must be a whole number, not 80.0"),
        ({"steps": True}, "steps must be a whole number"),
        ({"steps": "80"}, "steps must be a whole number"),
        ({"steps": 4_000_000_000_000}, "steps must be at most"),
        ({"steps": 80, "device": "cuda:99"}, "cannot be used here"),
        ({}, "is finished already: set `steps`"),
    ],
)
def test_invalid_extension_changes_nothing(finished: Path, tmp_path: Path, arguments: Any, word: str) -> None:
    path = shutil.copytree(finished, tmp_path / "run")
    before = snapshot(path)
    with pytest.raises(UserError, match=word):
        cic.resume(path, quiet=True, **arguments)
    assert snapshot(path) == before


def test_extension_without_trust_changes_nothing(finished: Path, tmp_path: Path) -> None:
    path = shutil.copytree(finished, tmp_path / "run")
    header = json.loads((path / "config.json").read_text())
    header["config"]["domain"] = "gymnasium:unknown_module:Walker-v0"
    (path / "config.json").write_text(json.dumps(header))
    before = snapshot(path)
    with pytest.raises(UserError, match="would import the module"):
        cic.resume(path, steps=80, quiet=True)
    assert snapshot(path) == before


def test_extension_of_a_checkpoint_that_does_not_fit_keeps_the_finished_run(finished: Path, tmp_path: Path) -> None:
    path = shutil.copytree(finished, tmp_path / "run")
    for name in ("metrics.jsonl", "manifest.json"):  # the checkpoint before the end lacks its log
        file = path / "checkpoints" / "000000030" / name
        manifest = json.loads((file.parent / "manifest.json").read_text())
        manifest.pop("metrics.jsonl")
        file.unlink() if name == "metrics.jsonl" else file.write_text(json.dumps(manifest))
    before = snapshot(path)
    with pytest.raises(UserError, match="does not fit"):
        cic.resume(path, steps=80, quiet=True)
    after = snapshot(path)
    for changed in (before, after):
        changed.pop(path / "status.json")
    assert after == before
    assert Run(path).finished


def test_extension_with_no_checkpoint_before_the_end_is_refused(tmp_path: Path) -> None:
    path = cic.pretrain("gridworld", "rnd", out=tmp_path / "run", steps=60, checkpoint_every=1000, **SMALL).path
    before = snapshot(path)
    with pytest.raises(UserError, match=r"no checkpoint from before step 60.*start a new run with `steps=80`"):
        cic.resume(path, steps=80, quiet=True)
    assert snapshot(path) == before


@pytest.mark.parametrize("operation", ["replace", "rmdir", "unlink"])
@pytest.mark.parametrize("number", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3))])
def test_extension_that_is_killed_can_be_continued(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, number: int
) -> None:
    """Killed at any file operation of the extension, the run resumes bit-exactly, extended or not."""
    path = shutil.copytree(finished, tmp_path / "run")
    whole = cic.pretrain("gridworld", "rnd", out=tmp_path / "whole", steps=80, checkpoint_every=30, **SMALL).path
    original, calls = getattr(os, operation), 0

    def kill(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    run = Run(path)
    run.extend(80, 60)
    run.lock()
    assert run.load_checkpoint() is not None
    monkeypatch.setattr(os, operation, kill)
    with contextlib.suppress(KeyboardInterrupt):
        run.apply_extension()
    monkeypatch.undo()
    run.unlock()
    if Run(path).config["steps"] == 60:
        assert cic.resume(path, steps=80, quiet=True).result["step"] == 80
    else:
        assert cic.resume(path, quiet=True).result["step"] == 80
    assert_same(path, whole, 80)
    assert "discard_from" not in json.loads((path / "config.json").read_text())


def test_command_extends_by_steps_only(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = shutil.copytree(finished, tmp_path / "run")
    assert cli.main(["pretrain", "--resume", str(path), "--steps", "80", "--seed", "2"]) == 2
    assert "drop --seed" in capsys.readouterr().err
    assert cli.main(["pretrain", "--resume", str(path), "--steps", "0.08k", "--quiet"]) == 0
    assert "step 80" in capsys.readouterr().out
