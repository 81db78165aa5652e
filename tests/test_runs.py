"""The run folder: what opens, what is refused, which checkpoint is used."""

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
from cic.runs.folder import FORMAT, Inheritance, Run
from cic.runs.storage import read_tensors


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.plan(tmp_path / "run", "pretrain", {"seed": 1, "milestones": [1, 2], "learning": {"lr": 0.1}}).create(
        {"version": "9.9"}
    )


def save(run: Run, step: int) -> None:
    weights = {"w": torch.full((2,), float(step))}
    run.save_checkpoint(step, {"agent": weights, "optimisers": {}}, {"replay": {"obs": np.ones(3)}}, {"step": step})


def steps(folders: list[Path]) -> list[int]:
    return [int(folder.name) for folder in folders]


def harm(folder: Path, name: str = "agent.safetensors") -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:-3])


# ---- opening ---------------------------------------------------------------------------------------------------


def test_a_created_run_opens_with_its_config(run: Run) -> None:
    opened = Run(run.path)
    assert opened.kind == "pretrain"
    assert opened.config == {"seed": 1, "milestones": [1, 2], "learning": {"lr": 0.1}}
    header = json.loads((run.path / "config.json").read_text())
    assert (header["format"], header["version"]) == (FORMAT, "9.9")
    assert not opened.finished


def test_a_run_is_never_created_over_another(run: Run) -> None:
    with pytest.raises(UserError, match="holds a run already"):
        Run.plan(run.path, "finetune", {}).create({"version": "1"})
    assert Run(run.path).kind == "pretrain"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (None, "is missing"),
        ("{", "is damaged"),
        ("[]", "not the config of a run"),
        ('{"format": 2}', "not the config of a run"),
        ('{"format": 3, "version": "7.0", "kind": "pretrain", "config": {}}', r"newer version of cic \(7.0"),
        (
            '{"format": 1, "version": "0.1.0", "kind": "pretrain", "config": {}}',
            r"made by cic 0\.1.*open it with cic 0\.1",
        ),
        ('{"format": 2, "kind": "banana", "config": {}}', "not the config of a run"),
        ('{"format": 2, "kind": "pretrain", "config": []}', "not the config of a run"),
    ],
)
def test_what_is_no_run_of_this_version_is_refused(run: Run, content: str | None, word: str) -> None:
    path = run.path / "config.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=word):
        Run(run.path)


def test_a_missing_folder_and_a_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        Run(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file"):
        Run(tmp_path / "file")


def test_a_folder_that_cannot_be_made_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot make the folder"):
        Run.plan(tmp_path / "file" / "run", "pretrain", {}).create({"version": "1"})


def test_a_planned_run_is_nowhere_yet(tmp_path: Path) -> None:
    planned = Run.plan(tmp_path / "run", "pretrain", {"seed": 1})
    assert (planned.path, planned.kind, planned.config) == (tmp_path / "run", "pretrain", {"seed": 1})
    assert list(tmp_path.iterdir()) == []


# ---- checkpoints -----------------------------------------------------------------------------------------------


def test_the_last_two_checkpoints_are_kept(run: Run) -> None:
    for step in (100, 200, 300, 1_000_000_000):
        save(run, step)
    assert steps(run.checkpoints()) == [300, 1_000_000_000]


def test_milestones_are_kept_for_good_as_weights_only(run: Run) -> None:
    for step in (1, 2, 3):
        run.save_milestone(step, {"w": torch.full((2,), float(step))})
    assert steps(run.milestones()) == [1, 2, 3]
    assert sorted(os.listdir(run.milestones()[0])) == ["agent.safetensors", "manifest.json", "state.json"]
    assert run.weights(2)[0]["w"].tolist() == [2, 2]


def test_the_newest_checkpoint_is_loaded(run: Run) -> None:
    save(run, 100)
    save(run, 200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = run.load_checkpoint()
    assert loaded is not None
    assert loaded[2]["step"] == 200
    assert loaded[0]["agent"]["w"].tolist() == [200, 200]


def test_a_run_without_checkpoints_starts_anew(run: Run) -> None:
    assert run.load_checkpoint() is None


@pytest.mark.parametrize("name", ["agent.safetensors", "optimisers.safetensors", "replay.safetensors", "state.json"])
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(run: Run, name: str) -> None:
    save(run, 100)
    save(run, 200)
    harm(run.checkpoints()[-1], name)
    with pytest.warns(UserWarning, match=rf"000000200 is damaged \({name}.*using the checkpoint before it"):
        loaded = run.load_checkpoint()
    assert loaded is not None
    assert loaded[2]["step"] == 100
    assert steps(run.checkpoints()) == [100], "its step comes again, and with it a good checkpoint"


def test_if_every_checkpoint_is_damaged_that_is_said(run: Run) -> None:
    for step in (100, 200):
        save(run, step)
        harm(run.checkpoints()[-1])
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(UserError, match=r"every checkpoint .* is damaged"),
    ):
        run.load_checkpoint()
    assert steps(run.checkpoints()) == [100, 200], "nothing is thrown away"


def test_a_half_written_checkpoint_does_not_count(run: Run) -> None:
    save(run, 100)
    half = run.path / "checkpoints" / ".000000200"
    half.mkdir()
    (half / "agent.safetensors").write_bytes(b"half")
    assert steps(run.checkpoints()) == [100]


@pytest.mark.parametrize("change", [{"seed": 2}, {"learning": {"lr": 0.2}}, {"more": 1}])
def test_a_config_changed_after_the_checkpoint_is_refused(run: Run, change: dict[str, Any]) -> None:
    save(run, 100)
    header = json.loads((run.path / "config.json").read_text())
    header["config"] |= change
    (run.path / "config.json").write_text(json.dumps(header))
    with pytest.raises(UserError, match="was changed after"):
        Run(run.path).load_checkpoint()


def test_a_reformatted_config_is_the_same_config(run: Run) -> None:
    save(run, 100)
    header = json.loads((run.path / "config.json").read_text())
    header["config"] = dict(reversed(header["config"].items()))
    (run.path / "config.json").write_text(json.dumps(header))
    assert Run(run.path).load_checkpoint() is not None


# ---- weights ---------------------------------------------------------------------------------------------------


def test_weights_are_the_newest_unless_a_step_is_named(run: Run) -> None:
    run.save_milestone(50, {"w": torch.full((2,), 50.0)})
    save(run, 100)
    save(run, 200)
    assert run.weights()[1] == 200
    assert run.weights(50)[0]["w"].tolist() == [50, 50]
    with pytest.raises(UserError, match=r"no weights at step 70; there are: 50, 100, 200"):
        run.weights(70)


def test_weights_before_the_first_checkpoint_are_the_users_error(run: Run) -> None:
    with pytest.raises(UserError, match="no checkpoint yet"):
        run.weights()


def test_damaged_weights_are_passed_over_with_a_warning(run: Run) -> None:
    save(run, 100)
    save(run, 200)
    harm(run.checkpoints()[-1])
    with pytest.warns(UserWarning, match="using the weights before it"):
        weights, step = run.weights()
    assert (step, weights["w"].tolist()) == (100, [100, 100])
    with pytest.raises(UserError, match="damaged"):
        run.weights(200)


def test_weights_that_are_a_pickle_are_refused_not_passed_over(run: Run) -> None:
    save(run, 100)
    save(run, 200)
    torch.save({"w": torch.zeros(2)}, run.checkpoints()[-1] / "agent.safetensors")
    for ask in (run.weights, run.load_checkpoint):
        with pytest.raises(UserError, match="pickle"):
            ask()


def test_a_milestone_stands_in_for_a_damaged_checkpoint_of_its_step(run: Run) -> None:
    save(run, 100)
    run.save_milestone(200, {"w": torch.full((2,), 200.0)})
    save(run, 200)
    harm(run.checkpoints()[-1])
    with pytest.warns(UserWarning, match="damaged"):
        weights, step = run.weights()
    assert (step, weights["w"].tolist()) == (200, [200, 200])


def test_a_step_means_its_milestone_while_its_checkpoint_is_there_and_after(run: Run) -> None:
    run.save_milestone(100, {"w": torch.full((2,), 99.0)})
    save(run, 100)
    assert run.weights(100)[0]["w"].tolist() == [99, 99]
    assert run.weights()[0]["w"].tolist() == [100, 100], "the newest is the checkpoint"


def inheriting(path: Path) -> Run:
    return Run.plan(path, "finetune", {"pretrained": "somewhere"})


def inheritance(weight: torch.Tensor) -> Inheritance:
    return Inheritance({"w": weight}, {"paths": np.array([1.0, 2.0])})


def test_inherited_weights_come_back_and_damage_is_noticed(tmp_path: Path) -> None:
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


def test_a_folder_becomes_a_run_only_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while the inherited weights are written, a finetuning can be started again in the same folder."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cic.runs.folder.write_folder", stop)
    with pytest.raises(KeyboardInterrupt):
        inheriting(tmp_path / "tuned").create({"version": "1"}, inheritance(torch.zeros(1)))
    monkeypatch.undo()
    assert inheriting(tmp_path / "tuned").create({"version": "1"}, inheritance(torch.zeros(1))).inherited()


def test_a_run_in_a_folder_of_the_users_touches_nothing_of_theirs(tmp_path: Path) -> None:
    """`--out .` in a project must not sweep away its hidden folders."""
    (tmp_path / ".git" / "objects").mkdir(parents=True)
    (tmp_path / ".notes").write_text("mine")
    (tmp_path / "src").mkdir()
    run = inheriting(tmp_path).create({"version": "1"}, inheritance(torch.zeros(1)))
    save(run, 100)
    run.save_milestone(100, {"w": torch.zeros(1)})
    assert (tmp_path / ".git" / "objects").is_dir()
    assert (tmp_path / ".notes").read_text() == "mine"
    assert (tmp_path / "src").is_dir()


def test_two_processes_never_write_one_run(run: Run) -> None:
    run.lock()
    code = f"from cic.runs.folder import Run; Run({str(run.path)!r}).lock()"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert other.returncode != 0
    assert "another process is writing" in other.stderr
    run.unlock()
    Run(run.path).lock()


def test_a_lock_that_was_not_had_is_not_kept(run: Run) -> None:
    first, second = Run(run.path), Run(run.path)
    first.lock()
    with pytest.raises(UserError, match="another process"):
        second.lock()
    first.unlock()
    third = Run(run.path)
    third.lock()
    third.unlock()


# ---- small files -----------------------------------------------------------------------------------------------


def test_status_and_result_are_json(run: Run) -> None:
    run.write_status("running", 7, "all is well")
    status = json.loads((run.path / "status.json").read_text())
    assert (status["state"], status["step"], status["message"]) == ("running", 7, "all is well")
    run.write_result({"return": 1.5})
    assert run.finished
    assert json.loads((run.path / "result.json").read_text()) == {"return": 1.5}
