"""The run folder: opening, creating, locking, and which checkpoint is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cic.core.errors import UserError
from cic.core.types import Spaces
from cic.learning.replay import Replay
from cic.runs.folder import FORMAT, Checkpoint, Inheritance, ReplayUnusable, Run
from cic.runs.jsonl_log import JsonlLog
from cic.runs.names import partial
from cic.runs.untrusted import read_tensors


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.plan(tmp_path / "run", "pretrain", {"seed": 1, "milestones": [1, 2], "learning": {"lr": 0.1}}).create(
        {"version": "9.9"}
    )


def save(run: Run, step: int) -> None:
    weights = {"w": torch.full((2,), float(step))}
    replay = Replay(Spaces(3, 2), 0, capacity=8)
    one = np.ones((1, 3), np.float32), np.zeros((1, 0), np.float32), np.ones((1, 2), np.float32)
    replay.add(*one, np.array([step], np.float32), np.zeros(1, np.bool_))
    run.save_checkpoint(step, {"agent": weights, "optimisers": {}}, {"replay": replay.state()}, {"step": step})


def load(run: Run) -> Checkpoint | None:
    """What resuming does, in a process of its own."""
    opened = Run(run.path)
    opened.lock()
    try:
        return opened.load_checkpoint()
    finally:
        opened.unlock()


def steps(folders: list[Path]) -> list[int]:
    return [int(folder.name) for folder in folders]


def damage(folder: Path, name: str = "agent.safetensors") -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:-3])


# ---- opening ---------------------------------------------------------------------------------------------------


def test_created_run_opens_with_its_config(run: Run) -> None:
    opened = Run(run.path)
    assert opened.kind == "pretrain"
    assert opened.config == {"seed": 1, "milestones": [1, 2], "learning": {"lr": 0.1}}
    header = json.loads((run.path / "config.json").read_text())
    assert (header["format"], header["version"]) == (FORMAT, "9.9")
    assert not opened.finished


def test_run_is_not_created_over_another(run: Run) -> None:
    with pytest.raises(UserError, match="contains a run already"):
        Run.plan(run.path, "finetune", {}).create({"version": "1"})
    assert Run(run.path).kind == "pretrain"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (None, "is missing"),
        ("{", "is not valid JSON"),
        ("[]", "is not a JSON object"),
        ('{"format": 3}', "not the config of a run"),
        ('{"format": 4, "version": "7.0", "kind": "pretrain", "config": {}}', r"newer version of cic \(7.0.*upgrade"),
        ('{"format": 1, "version": "0.1.0", "kind": "pretrain", "config": {}}', r"earlier version of cic \(0\.1\.0"),
        ('{"format": 3, "kind": "banana", "config": {}}', "not the config of a run"),
        ('{"format": 3, "kind": "pretrain", "config": []}', "not the config of a run"),
        ('{"format": 3, "kind": "pretrain", "config": {}, "discard_from": "x"}', "not the config of a run"),
    ],
)
def test_folder_that_is_not_a_run_is_refused(run: Run, content: str | None, word: str) -> None:
    path = run.path / "config.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=word):
        Run(run.path)


def test_run_of_format_2_is_read_but_not_resumed(run: Run) -> None:
    save(run, 100)
    header = json.loads((run.path / "config.json").read_text())
    header["config"] |= {"pull": 0.0, "critic_rank": 0.0}
    (run.path / "config.json").write_text(json.dumps(header | {"format": 2}))
    opened = Run(run.path)
    assert opened.config == run.config, "settings that no longer exist are omitted"
    assert opened.weights()[1] == 100
    with pytest.raises(ReplayUnusable, match=r"made by cic 0\.2"):
        opened.replay()
    for refused in (opened.require_current_format, lambda: load(run)):
        with pytest.raises(UserError, match=r"made by cic 0\.2: finish it with that version"):
            refused()


def test_missing_folder_and_file_have_different_messages(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        Run(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file"):
        Run(tmp_path / "file")


def test_folder_that_cannot_be_made_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot make the folder"):
        Run.plan(tmp_path / "file" / "run", "pretrain", {}).create({"version": "1"})


def test_planned_run_writes_nothing(tmp_path: Path) -> None:
    planned = Run.plan(tmp_path / "run", "pretrain", {"seed": 1})
    assert (planned.path, planned.kind, planned.config) == (tmp_path / "run", "pretrain", {"seed": 1})
    assert list(tmp_path.iterdir()) == []


# ---- checkpoints -----------------------------------------------------------------------------------------------


def test_the_last_two_checkpoints_are_kept(run: Run) -> None:
    for step in (100, 200, 300, 1_000_000_000):
        save(run, step)
    assert steps(run.checkpoints()) == [300, 1_000_000_000]


def test_milestones_are_kept_and_contain_weights_only(run: Run) -> None:
    for step in (1, 2, 3):
        run.save_milestone(step, {"w": torch.full((2,), float(step))})
    assert steps(run.milestones()) == [1, 2, 3]
    assert sorted(os.listdir(run.milestones()[0])) == ["agent.safetensors", "manifest.json", "state.json"]
    assert run.weights(2)[0]["w"].tolist() == [2, 2]


def test_newest_checkpoint_is_loaded(run: Run) -> None:
    save(run, 100)
    save(run, 200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = load(run)
    assert found is not None
    assert found.folder == run.path / "checkpoints" / "000000200"
    assert found.state["step"] == 200
    assert found.tensors["agent"]["w"].tolist() == [200, 200]


def test_run_without_checkpoints_starts_at_zero(run: Run) -> None:
    assert load(run) is None


@pytest.mark.parametrize("name", ["agent.safetensors", "optimisers.safetensors", "replay.safetensors", "state.json"])
def test_resuming_skips_a_damaged_checkpoint_and_deletes_nothing(run: Run, name: str) -> None:
    save(run, 100)
    save(run, 200)
    damage(run.checkpoints()[-1], name)
    with pytest.warns(UserWarning, match=rf"000000200 is damaged \({name}.*using the checkpoint before it"):
        found = load(run)
    assert found is not None
    assert found.state["step"] == 100
    assert steps(run.checkpoints()) == [100, 200], "its weights may be intact"


def test_damaged_checkpoint_is_removed_when_training_has_passed_it(run: Run) -> None:
    for step in (100, 200, 300):
        save(run, step)
    damage(run.checkpoints()[-1])
    run.lock()
    with pytest.warns(UserWarning, match="damaged"):
        run.load_checkpoint()
    save(run, 250)
    assert steps(run.checkpoints()) == [200, 250, 300]
    save(run, 350)
    assert steps(run.checkpoints()) == [250, 350]
    run.unlock()


def test_every_checkpoint_damaged_is_an_error_that_deletes_nothing(run: Run) -> None:
    for step in (100, 200):
        save(run, step)
        damage(run.checkpoints()[-1])
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(UserError, match=r"every checkpoint .* is damaged"),
    ):
        load(run)
    assert steps(run.checkpoints()) == [100, 200]


def test_partial_checkpoint_does_not_count(run: Run) -> None:
    save(run, 100)
    half = partial(run.path / "checkpoints" / "000000200")
    half.mkdir()
    (half / "agent.safetensors").write_bytes(b"half")
    assert steps(run.checkpoints()) == [100]


@pytest.mark.parametrize("change", [{"seed": 2}, {"learning": {"lr": 0.2}}, {"more": 1}])
def test_config_that_was_changed_after_the_checkpoint_is_refused(run: Run, change: dict[str, Any]) -> None:
    save(run, 100)
    header = json.loads((run.path / "config.json").read_text())
    header["config"] |= change
    (run.path / "config.json").write_text(json.dumps(header))
    with pytest.raises(UserError, match="was changed after"):
        load(run)


def test_reformatted_config_is_the_same_config(run: Run) -> None:
    save(run, 100)
    header = json.loads((run.path / "config.json").read_text())
    header["config"] = dict(reversed(header["config"].items()))
    (run.path / "config.json").write_text(json.dumps(header))
    assert load(run) is not None


# ---- weights ---------------------------------------------------------------------------------------------------


def test_weights_are_the_newest_unless_a_step_is_named(run: Run) -> None:
    run.save_milestone(50, {"w": torch.full((2,), 50.0)})
    save(run, 100)
    save(run, 200)
    assert run.weights()[1] == 200
    assert run.weights(50)[0]["w"].tolist() == [50, 50]
    with pytest.raises(UserError, match=r"no weights at step 70; there are: 50, 100, 200"):
        run.weights(70)


def test_weights_before_the_first_checkpoint_are_a_user_error(run: Run) -> None:
    with pytest.raises(UserError, match="no checkpoint yet"):
        run.weights()


def test_damaged_weights_are_skipped_with_a_warning(run: Run) -> None:
    save(run, 100)
    save(run, 200)
    damage(run.checkpoints()[-1])
    with pytest.warns(UserWarning, match=r"000000200 is damaged.*using .*000000100 instead"):
        weights, step = run.weights()
    assert (step, weights["w"].tolist()) == (100, [100, 100])
    with pytest.raises(UserError, match="damaged"):
        run.weights(200)


@pytest.mark.parametrize("name", ["optimisers.safetensors", "replay.safetensors", "state.json"])
def test_weights_do_not_need_the_other_parts(run: Run, name: str) -> None:
    save(run, 100)
    save(run, 200)
    damage(run.checkpoints()[-1], name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.weights()[1] == 200


def test_replay_is_the_newest_intact_one(run: Run) -> None:
    with pytest.raises(ReplayUnusable, match="no checkpoint"):
        run.replay()
    save(run, 100)
    save(run, 200)
    damage(run.checkpoints()[-1], "replay.safetensors")
    with pytest.warns(UserWarning, match=r"000000200 is damaged.*using .*000000100 instead"):
        assert run.replay()["reward"].tolist() == [[100]]
    damage(run.checkpoints()[0], "replay.safetensors")
    with pytest.warns(UserWarning, match="000000200"), pytest.raises(ReplayUnusable, match="000000100 is damaged"):
        run.replay()


def test_milestone_replaces_a_damaged_checkpoint_of_its_step(run: Run) -> None:
    save(run, 100)
    run.save_milestone(200, {"w": torch.full((2,), 200.0)})
    save(run, 200)
    damage(run.checkpoints()[-1])
    with pytest.warns(UserWarning, match="damaged"):
        weights, step = run.weights()
    assert (step, weights["w"].tolist()) == (200, [200, 200])


def test_step_means_its_milestone_before_its_checkpoint(run: Run) -> None:
    run.save_milestone(100, {"w": torch.full((2,), 99.0)})
    save(run, 100)
    assert run.weights(100)[0]["w"].tolist() == [99, 99]
    assert run.weights()[0]["w"].tolist() == [100, 100], "the newest is the checkpoint"


def inheriting(path: Path) -> Run:
    return Run.plan(path, "finetune", {"pretrained": "somewhere"})


def inheritance(weight: torch.Tensor) -> Inheritance:
    return Inheritance({"w": weight}, {"paths": np.array([1.0, 2.0])})


def test_inherited_weights_round_trip_and_damage_is_detected(tmp_path: Path) -> None:
    run = inheriting(tmp_path / "tuned").create({"version": "1"}, inheritance(torch.arange(100.0)))
    assert run.inherited().weights["w"].tolist() == list(range(100))
    assert run.inherited().library["paths"].tolist() == [1, 2]
    path = run.path / "inherited" / "agent.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # a number changed: still a good safetensors file
    path.write_bytes(content)
    assert read_tensors(path)["w"].tolist() != list(range(100))
    with pytest.raises(UserError, match="inherited"):
        run.inherited()


# ---- one writer ------------------------------------------------------------------------------------------------


def test_folder_becomes_a_run_only_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that is killed while the inherited weights are written can be repeated."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cic.runs.folder.write_folder", stop)
    with pytest.raises(KeyboardInterrupt):
        inheriting(tmp_path / "tuned").create({"version": "1"}, inheritance(torch.zeros(1)))
    monkeypatch.undo()
    assert inheriting(tmp_path / "tuned").create({"version": "1"}, inheritance(torch.zeros(1))).inherited()


def snapshot(folder: Path) -> dict[str, Any]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_run_in_a_folder_of_the_user_deletes_nothing_there(tmp_path: Path) -> None:
    """`--out .`: folders with names that look like those of partial checkpoints are the user's."""
    for name in (".git/objects", ".library", ".inherited", ".2024", "src", ".000000100"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text("mine")
    for name in (".notes", ".config.json.part", ".metrics.jsonl.part"):
        (tmp_path / name).write_text("mine")
    before = snapshot(tmp_path)
    run = inheriting(tmp_path).create({"version": "1"}, inheritance(torch.zeros(1)))
    save(run, 100)
    run.save_milestone(100, {"w": torch.zeros(1)})
    run.save_library({"paths": np.zeros(3)})
    run.write_status("running", 1)
    JsonlLog(tmp_path / "metrics.jsonl").close()
    after = snapshot(tmp_path)
    assert {name: after.get(name) for name in before} == before


@pytest.mark.parametrize("name", ["checkpoints", "milestones", "library", "inherited", "metrics.jsonl", "result.json"])
def test_run_is_not_created_over_files_of_the_user(tmp_path: Path, name: str) -> None:
    if name.endswith(("json", "jsonl")):
        (tmp_path / name).write_text("mine")
    else:
        (tmp_path / name).mkdir()
        (tmp_path / name / "000000001").write_text("mine")
    before = snapshot(tmp_path)
    with pytest.raises(UserError, match=rf"contains {name}, which a run would overwrite: choose another `out`"):
        inheriting(tmp_path).create({"version": "1"}, inheritance(torch.zeros(1)))
    after = snapshot(tmp_path)
    after.pop(str(tmp_path / ".lock"))
    assert after == before


def test_two_processes_never_write_one_run(run: Run) -> None:
    run.lock()
    code = f"from cic.runs.folder import Run; Run({str(run.path)!r}).lock()"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert other.returncode != 0
    assert "another process is writing" in other.stderr
    run.unlock()
    Run(run.path).lock()


def test_failed_lock_is_not_kept(run: Run) -> None:
    first, second = Run(run.path), Run(run.path)
    first.lock()
    with pytest.raises(UserError, match="another process"):
        second.lock()
    second.unlock()
    with pytest.raises(UserError, match="another process"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_lock_is_freed_when_the_process_is_killed(run: Run) -> None:
    code = "import os, sys; from cic.runs.folder import Run; run = Run(sys.argv[1]); run.lock()"
    code += "; print('locked', flush=True); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", code, run.path], capture_output=True, text=True, check=False)
    assert done.stdout == "locked\n"
    run.lock()
    run.unlock()


# ---- small files -----------------------------------------------------------------------------------------------


def test_status_and_result_are_json(run: Run) -> None:
    run.write_status("running", 7, "all is well")
    status = json.loads((run.path / "status.json").read_text())
    assert (status["state"], status["step"], status["message"]) == ("running", 7, "all is well")
    run.write_result({"return": 1.5})
    assert run.finished
    assert json.loads((run.path / "result.json").read_text()) == {"return": 1.5}
