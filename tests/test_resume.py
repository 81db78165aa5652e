"""Exact resume: whatever kills a run, and whenever, it ends with the bits of the run that nobody disturbed.

Children die by their own hand at a counted event (the n-th call of any Python or C function, or a chosen moment of
writing a checkpoint), so the moments are random but repeat. A fork server keeps starting them cheap.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from faults.folders import contents

from cic import api
from cic.runs import storage
from cic.runs.folder import Run

PRETRAIN: dict[str, Any] = {
    "scale": "smoke",
    "steps": 150,
    "warmup": 30,
    "hidden": 16,
    "batch": 16,
    "skill_dim": 4,
    "skill_every": 7,
    "num_envs": 2,
    "replay": 200,  # the ring overflows
    "log_every": 22,
    "checkpoint_every": 10,  # more often than lines are logged
    "milestones": (60,),
}
FINETUNE: dict[str, Any] = {
    "scale": "smoke",
    "steps": 150,
    "warmup": 60,
    "search_steps": 80,
    "hidden": 16,
    "batch": 16,
    "search": "cma",
    "trial_steps": 5,
    "log_every": 22,
    "checkpoint_every": 10,
    "eval_every": 60,
    "eval_episodes": 2,
}


# ---- lives and deaths ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Death:
    """At the n-th event after the start, or at the n-th call of `target`: before it, after it, or with half written."""

    number: int
    target: str = "any call"
    moment: str = "before"
    signal: int = signal.SIGKILL


def die(number: int) -> None:
    os.kill(os.getpid(), number)


def arrange(death: Death) -> None:
    count = 0

    def due() -> bool:
        nonlocal count
        count += 1
        return count == death.number

    if death.target == "any call":

        def watch(*_: Any) -> None:
            if due():
                die(death.signal)

        sys.setprofile(watch)
        return
    owner, name = {
        "fsync": (os, "fsync"),
        "replace": (os, "replace"),
        "rename": (Path, "rename"),
        "rmtree": (shutil, "rmtree"),
        "save_tensors": (storage, "save_tensors"),
        "save_arrays": (storage, "save_arrays"),
    }[death.target]
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        last = due()
        if last and death.moment == "before":
            die(death.signal)
        result = original(*args, **kwargs)
        if last and death.moment == "half":
            path = Path(args[1])
            os.truncate(path, path.stat().st_size // 2)
        if last:
            die(death.signal)
        return result

    setattr(owner, name, wrapped)


def live(path: Path, start: Callable[[], Any], death: Death | None, count_to: Path | None = None) -> None:
    """One process: begins the run or continues it, and dies if it was told to."""
    torch.set_num_threads(1)
    events = 0
    if death is not None:
        arrange(death)
    elif count_to is not None:

        def watch(*_: Any) -> None:
            nonlocal events
            events += 1

        sys.setprofile(watch)
    try:
        if (path / "config.json").exists():
            api.resume(path, quiet=True)
        else:
            start()
    finally:
        sys.setprofile(None)
    if count_to is not None:
        count_to.write_text(str(events))


@pytest.fixture(scope="module")
def process() -> Callable[..., int]:
    """Runs a function in a new process and says how it ended."""
    context = multiprocessing.get_context("forkserver")
    heavy = [
        "pytest",
        "hypothesis",
        "torch._dynamo",
        "torch.utils.tensorboard",
        "cma",
        "mujoco",
        "dm_control",
        "rich.progress",
    ]
    context.set_forkserver_preload([*heavy, "cic.api", "cic.envs.gridworld", "cic.envs.suite.point_mass"])

    def start(function: Callable[..., None], *args: Any) -> int:
        child = context.Process(target=function, args=args)
        child.start()
        child.join(60)
        assert child.exitcode is not None, "the child hangs"
        return child.exitcode

    return start


# ---- what must be equal ----------------------------------------------------------------------------------------


def assert_equal(path: Path, reference: Path) -> None:
    got, expected = contents(path), contents(reference)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert got[name] == value, f"{name} differs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resume")


def pretraining(path: Path) -> Callable[[], Any]:
    return functools.partial(api.pretrain, "point_mass", out=path, quiet=True, **PRETRAIN)


def finetuning(path: Path, source: Path) -> Callable[[], Any]:
    task = "gridworld-reach_top_left"
    return functools.partial(api.finetune, source, task, out=path, quiet=True, **FINETUNE)


@pytest.fixture(scope="module")
def pretrained(folder: Path, process: Callable[..., int]) -> tuple[Path, int]:
    """The undisturbed pre-training, and how many events it has."""
    path = folder / "pretrained"
    assert process(live, path, pretraining(path), None, folder / "events") == 0
    return path, int((folder / "events").read_text())


@pytest.fixture(scope="module")
def skills(folder: Path) -> Path:
    settings = PRETRAIN | {"num_envs": 1, "steps": 60, "checkpoint_every": 60}
    return api.pretrain("gridworld", out=folder / "skills", quiet=True, **settings).path


@pytest.fixture(scope="module")
def finetuned(folder: Path, skills: Path, process: Callable[..., int]) -> tuple[Path, int]:
    path = folder / "finetuned"
    assert process(live, path, finetuning(path, skills), None, folder / "events") == 0
    return path, int((folder / "events").read_text())


# ---- SIGKILL ---------------------------------------------------------------------------------------------------


def test_the_undisturbed_runs_are_worth_comparing(pretrained: tuple[Path, int], finetuned: tuple[Path, int]) -> None:
    """They log, learn, save, pass a milestone, overflow their replay, search for a skill and evaluate."""
    names = contents(pretrained[0]).keys()
    assert {"metrics.jsonl", "result.json", "milestones/000000060/agent.safetensors"} <= names
    assert {f"checkpoints/000000{step}/replay.safetensors" for step in (140, 150)} <= names
    lines = [json.loads(line) for line in (pretrained[0] / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == sorted(line["step"] for line in lines)
    assert len(lines) >= 7
    assert lines[-1]["update"] == 60
    tuned = [json.loads(line) for line in (finetuned[0] / "metrics.jsonl").read_text().splitlines()]
    assert sum("eval/return" in line for line in tuned) == 2
    trials = json.loads((finetuned[0] / "trials.json").read_text())
    assert [trial["steps"] for trial in trials["trials"]] == [5] * 16


def undying(
    path: Path, start: Callable[[], Any], process: Callable[..., int], rng: np.random.Generator, most: int
) -> int:
    """Kill at random events until the run ends by itself; how often it died."""
    deaths = 0
    while not (path / "result.json").exists():
        code = process(live, path, start, Death(int(rng.integers(1, most))))
        assert code in (0, -signal.SIGKILL)
        deaths += code != 0
        assert deaths < 60, "the run makes no progress"
    return deaths


def test_pretraining_killed_at_random_moments_ends_with_the_same_bits(
    folder: Path, pretrained: tuple[Path, int], process: Callable[..., int]
) -> None:
    reference, events = pretrained
    rng = np.random.default_rng(1)
    deaths = 0
    for attempt in range(9):
        path = folder / f"killed-{attempt}"
        deaths += undying(path, pretraining(path), process, rng, events // 3)
        assert_equal(path, reference)
        if deaths >= 6:
            break
    assert deaths >= 6


def test_finetuning_killed_at_random_moments_ends_with_the_same_bits(
    folder: Path, skills: Path, finetuned: tuple[Path, int], process: Callable[..., int]
) -> None:
    reference, events = finetuned
    rng = np.random.default_rng(2)
    deaths = 0
    for attempt in range(9):
        path = folder / f"killed-finetuning-{attempt}"
        deaths += undying(path, finetuning(path, skills), process, rng, 2 * events // 3)
        assert_equal(path, reference)
        if deaths >= 6:
            break
    assert deaths >= 6


DURING = [
    *(Death(number, "save_tensors", moment) for number, moment in [(3, "half"), (4, "after")]),
    *(Death(number, "save_arrays", moment) for number, moment in [(5, "half"), (8, "after")]),
    *(Death(number, "fsync") for number in (12, 22)),
    Death(2, "rename", "before"),
    Death(2, "rename", "after"),
    Death(2, "rmtree", "before"),
    Death(2, "rmtree", "after"),
    Death(2, "replace", "before"),
    Death(3, "replace", "after"),
]


def test_killed_while_writing_a_checkpoint_the_run_ends_with_the_same_bits(
    folder: Path, pretrained: tuple[Path, int], process: Callable[..., int]
) -> None:
    """Half a file, a file that was not synced, a folder that was not renamed, an old one that was not removed."""
    path = folder / "killed-while-writing"
    deaths = 0
    for death in DURING:
        if (path / "result.json").exists():
            assert_equal(path, pretrained[0])
            path = folder / f"killed-while-writing-{deaths}"
        code = process(live, path, pretraining(path), death)
        assert code in (0, -signal.SIGKILL)
        deaths += code != 0
    assert deaths >= 9
    if not (path / "result.json").exists():
        assert process(live, path, pretraining(path), None) == 0
    assert_equal(path, pretrained[0])


@pytest.mark.parametrize("target", ["fsync", "replace", "rename"])
def test_killed_at_its_very_end_the_run_still_ends_with_the_same_bits(
    folder: Path, pretrained: tuple[Path, int], process: Callable[..., int], target: str
) -> None:
    """Between the last step and the last file: the final line must not be logged twice."""
    path = folder / f"killed-at-the-end-{target}"
    shutil.copytree(pretrained[0], path)
    (path / "result.json").unlink()
    shutil.rmtree(path / "checkpoints" / "000000150")
    for number in range(1, 60, 4 if target == "fsync" else 1):
        code = process(live, path, pretraining(path), Death(number, target))
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert number > 1
    assert_equal(path, pretrained[0])


# ---- SIGINT and SIGTERM ----------------------------------------------------------------------------------------


def command(path: Path, death: Death) -> None:
    """`cic pretrain --resume`, with a signal on its way."""
    from cic import cli

    torch.set_num_threads(1)
    sys.stderr = open(path / "stderr", "w")  # noqa: SIM115
    arrange(death)
    sys.exit(cli.main(["pretrain", "--resume", str(path), "--quiet"]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_run_continues_to_the_same_bits(
    folder: Path, pretrained: tuple[Path, int], process: Callable[..., int], number: int
) -> None:
    reference, events = pretrained
    path = folder / f"stopped-{number}"
    assert process(live, path, pretraining(path), Death(events // 3)) == -signal.SIGKILL
    before = int(Run(path).checkpoints()[-1].name)
    assert process(command, path, Death(events // 4, signal=number)) == 130
    said = (path / "stderr").read_text().splitlines()
    assert len(said) == 1
    name = signal.Signals(number).name
    assert said[0].startswith(f"cic: {name}: saved at step ")
    assert f"cic pretrain --resume {path}" in said[0]
    status = json.loads((path / "status.json").read_text())
    assert status["state"] == "interrupted"
    assert name in status["message"]
    saved = int(Run(path).checkpoints()[-1].name)
    assert saved == status["step"] > before
    (path / "stderr").unlink()
    assert process(live, path, pretraining(path), None) == 0
    assert_equal(path, reference)
    assert json.loads((path / "status.json").read_text())["state"] == "finished"


# ---- damage ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["agent.safetensors", "replay.safetensors", "state.json", "manifest.json"])
def test_with_a_damaged_newest_checkpoint_the_one_before_leads_to_the_same_bits(
    folder: Path, pretrained: tuple[Path, int], name: str
) -> None:
    reference, _ = pretrained
    path = folder / f"damaged-{name}"
    shutil.copytree(reference, path)
    (path / "result.json").unlink()
    harmed = path / "checkpoints" / "000000150" / name
    os.truncate(harmed, harmed.stat().st_size // 2)
    with pytest.warns(UserWarning, match=r"000000150 .*using the checkpoint before it"):
        api.resume(path, quiet=True)
    assert_equal(path, reference)
