"""Reading a run never changes its folder, and damage to one part does not prevent the use of the others."""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cic
from cic import api
from cic.core.errors import UserError
from cic.export import episodes_of, export_policy, write_exorl
from cic.report import report
from cic.runs import records
from cic.runs.folder import Run

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 8, "batch": 8, "log_every": 50, "quiet": True}
TUNE: dict[str, Any] = {**SMALL, "steps": 60, "warmup": 20, "trial_steps": 10, "eval_episodes": 1}
TASK = "gridworld-reach_top_left"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reading")


@pytest.fixture(scope="module")
def pretrained(home: Path) -> Path:
    settings = {**SMALL, "steps": 120, "warmup": 40, "checkpoint_every": 60, "milestones": (100,)}
    return cic.pretrain("gridworld", "aps", out=home / "pretrained", **settings).path


def snapshot(folder: Path) -> dict[Path, Any]:
    """The bytes of every file, and the time of the last change of every file and folder."""
    paths = [folder, *sorted(folder.rglob("*"))]
    return {path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None) for path in paths}


def flip_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


READERS: dict[str, Callable[[Path, Path], Any]] = {
    "load": lambda run, out: cic.load(run),
    "load at a milestone": lambda run, out: cic.load(run, at=100),
    "evaluate": lambda run, out: cic.evaluate(run, episodes=1),
    "infer": lambda run, out: api.infer(run, 20, episodes=1),
    "skills": lambda run, out: cic.skills(run, out=out, count=2, video=False),
    "records": lambda run, out: records.read([run]),
    "report": lambda run, out: report([run], out),
    "finetune": lambda run, out: cic.finetune(run, TASK, out=out, **TUNE),
    "finetune from a milestone": lambda run, out: cic.finetune(run, TASK, at=100, out=out, **TUNE),
    "export the policy": lambda run, out: export_policy(run, out / "policy.pt"),
    "export episodes": lambda run, out: write_exorl(episodes_of(run), out),
    "resume a finished run": lambda run, out: cic.resume(run),
}
REFUSED = {"resume a finished run": "is finished already", "infer": "is 0 at all 20 labelled states"}
"""The gridworld's corners are too rare for `infer`, which has read the replay by then."""


@pytest.mark.parametrize("damaged", [None, "optimisers", "replay", "agent"])
@pytest.mark.parametrize("reader", READERS)
def test_reading_changes_nothing(pretrained: Path, tmp_path: Path, reader: str, damaged: str | None) -> None:
    source, out = shutil.copytree(pretrained, tmp_path / "source"), tmp_path / "out"
    if damaged is not None:
        flip_bit(Run(source).checkpoints()[-1] / f"{damaged}.safetensors")
    if reader.startswith("export"):
        out.mkdir()
    before = snapshot(source)
    refused = REFUSED.get(reader, "is damaged" if (reader, damaged) == ("finetune", "agent") else None)
    with warnings.catch_warnings(), pytest.raises(UserError, match=refused) if refused else contextlib.nullcontext():
        warnings.simplefilter("ignore")
        READERS[reader](source, out)
    assert snapshot(source) == before


@pytest.mark.parametrize("damaged", ["replay", "optimisers"])
def test_finetuning_uses_the_intact_parts_of_a_damaged_run(pretrained: Path, tmp_path: Path, damaged: str) -> None:
    source = shutil.copytree(pretrained, tmp_path / "source")
    last = Run(source).checkpoints()[-1]
    flip_bit(last / f"{damaged}.safetensors")
    before = snapshot(source)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tuned = cic.finetune(source, TASK, out=tmp_path / "tuned", prior_data=0.5, **TUNE).path
    messages = [str(warning.message) for warning in caught]
    reported = [message for message in messages if f"{last} is damaged (replay.safetensors" in message]
    assert len(reported) == (1 if damaged == "replay" else 0), messages
    assert Run(tuned).config["pretrain_steps"] == 120
    used = Run(tuned).inherited()
    assert used is not None
    assert all(used.weights[name].equal(value) for name, value in Run(source).weights(120)[0].items())
    assert used.steps is not None
    assert snapshot(source) == before


def test_finetuning_without_any_intact_replay(pretrained: Path, tmp_path: Path) -> None:
    source = shutil.copytree(pretrained, tmp_path / "source")
    for folder in Run(source).checkpoints():
        flip_bit(folder / "replay.safetensors")
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(UserError, match=r"is damaged .*`prior_data=0`"):
        cic.finetune(source, TASK, out=tmp_path / "asked", prior_data=0.5, **TUNE)
    assert not (tmp_path / "asked").exists()
    with pytest.warns(UserWarning, match="finetuning without pre-training data"):
        tuned = cic.finetune(source, TASK, out=tmp_path / "tuned", **TUNE | {"scale": "laptop"}).path
    assert Run(tuned).config["prior_data"] == 0


@pytest.mark.parametrize("damaged", ["replay", "optimisers"])
def test_resuming_a_finished_run_keeps_its_final_weights(pretrained: Path, tmp_path: Path, damaged: str) -> None:
    """The result is lost and the final checkpoint damaged; the process that resumes it is killed at once."""
    source = shutil.copytree(pretrained, tmp_path / "source")
    (source / "result.json").unlink()
    final = Run(source).checkpoints()[-1]
    flip_bit(final / f"{damaged}.safetensors")
    run = Run(source)
    run.lock()
    with pytest.warns(UserWarning, match="using the checkpoint before it"):
        assert run.load_checkpoint() is not None
    run.unlock()
    assert Run(source).weights()[1] == 120
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cic.resume(source, quiet=True)
    for name in ("result.json", "metrics.jsonl", os.path.relpath(final / "agent.safetensors", source)):
        assert (source / name).read_bytes() == (pretrained / name).read_bytes()
