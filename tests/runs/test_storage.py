"""Atomic writes and verified reads of JSON files, logs and checkpoint folders."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cic.core.errors import UserError
from cic.runs import storage
from cic.runs.jsonl_log import JsonlLog
from cic.runs.storage import (
    Damaged,
    DiskError,
    load_weights,
    partial,
    read_arrays,
    read_folder,
    read_tensors,
    verify,
    write_folder,
    write_json,
)

TENSORS = {"agent": {"weight": torch.arange(12.0).reshape(3, 4).T, "count": torch.tensor(3)}}
ARRAYS = {"replay": {"obs": np.arange(24, dtype=np.float32).reshape(2, 3, 4)[:, :2], "flag": np.array([True, False])}}
STATE = {"step": 7, "rng": {"state": 2**100}, "nothing": None}
FILES = ["agent.safetensors", "replay.safetensors", "state.json"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoints" / "000000007"
    write_folder(path, TENSORS, ARRAYS, STATE)
    return path


def disk_full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


# ---- JSON ------------------------------------------------------------------------------------------------------


def test_json_round_trip(tmp_path: Path) -> None:
    content = {
        "a": [1, 2.5, None, True],
        "nested": {"skills": [[0.1, 0.2], [0.3]]},
        "text": 'a [1,\n 2] "b"',
        "none": [],
    }
    write_json(tmp_path / "x.json", content)
    assert json.loads((tmp_path / "x.json").read_text()) == content
    assert os.listdir(tmp_path) == ["x.json"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failed_json_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    write_json(tmp_path / "x.json", {"old": 1})
    monkeypatch.setattr(os, step, disk_full)
    with pytest.raises(OSError, match="No space"):
        write_json(tmp_path / "x.json", {"new": 2})
    monkeypatch.undo()
    assert json.loads((tmp_path / "x.json").read_text()) == {"old": 1}
    assert os.listdir(tmp_path) == ["x.json"]


# ---- logs ------------------------------------------------------------------------------------------------------


def test_log_continues_from_the_copy_in_a_checkpoint(tmp_path: Path) -> None:
    path, copy = tmp_path / "metrics.jsonl", tmp_path / "copy.jsonl"
    log = JsonlLog(path)
    log.write({"step": 1})
    log.copy_to(copy)
    log.write({"step": 2})
    log.close()
    again = JsonlLog(path, copy)
    again.write({"step": 3})
    again.copy_to(tmp_path / "second.jsonl")
    again.close()
    assert path.read_text() == '{"step": 1}\n{"step": 3}\n' == (tmp_path / "second.jsonl").read_text()
    assert copy.read_text() == '{"step": 1}\n'


@pytest.mark.parametrize("damage", ["short", "flipped", "zeroed", "empty", "missing", "fifo"])
def test_damaged_log_is_restored_with_a_warning(tmp_path: Path, damage: str) -> None:
    path, copy = tmp_path / "metrics.jsonl", tmp_path / "copy.jsonl"
    copy.write_bytes(b'{"step": 1}\n{"step": 2}\n')
    content = {"short": b'{"step": 1}\n', "flipped": b'{"step": 1}\n{"step": 3}\n', "zeroed": bytes(24), "empty": b""}
    if damage == "fifo":
        os.mkfifo(path)
    elif damage != "missing":
        path.write_bytes(content[damage])
    with pytest.warns(UserWarning, match=r"metrics\.jsonl was lost or changed; it is restored"):
        log = JsonlLog(path, copy)
    log.write({"step": 3})
    log.close()
    assert path.read_bytes() == b'{"step": 1}\n{"step": 2}\n{"step": 3}\n'


@pytest.mark.parametrize("change", [b"", b'{"step": 7}\n', None])
def test_log_that_another_process_changed_is_not_copied(tmp_path: Path, change: bytes | None) -> None:
    log = JsonlLog(tmp_path / "metrics.jsonl")
    log.write({"step": 1})
    if change is None:
        (tmp_path / "metrics.jsonl").unlink()
    else:
        (tmp_path / "metrics.jsonl").write_bytes(change)
    with pytest.raises(UserError, match=r"was changed while the run was writing it.*`resume`"):
        log.copy_to(tmp_path / "copy.jsonl")
    log.close()


def test_new_log_replaces_the_log_of_a_killed_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"of a run that was killed before its first checkpoint\n")
    JsonlLog(path).close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_nothing_is_written_through_a_link(tmp_path: Path, link: str) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    for name in ("metrics.jsonl", "x.json"):
        for path in (tmp_path / name, partial(tmp_path / name)):
            path.hardlink_to(target) if link == "hard" else path.symlink_to(target)
    log = JsonlLog(tmp_path / "metrics.jsonl")
    log.write({"step": 1})
    log.close()
    write_json(tmp_path / "x.json", {"a": 1})
    assert target.read_text() == "mine"
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1}


# ---- writing checkpoint folders --------------------------------------------------------------------------------


def test_folder_round_trip(folder: Path, tmp_path: Path) -> None:
    moved = shutil.move(folder, tmp_path / "elsewhere")
    tensors, arrays, state = read_folder(moved)
    assert state == STATE
    assert {name: value.tolist() for name, value in tensors["agent"].items()} == {
        name: value.tolist() for name, value in TENSORS["agent"].items()
    }
    for name, value in ARRAYS["replay"].items():
        assert arrays["replay"][name].dtype == value.dtype
        np.testing.assert_array_equal(arrays["replay"][name], value)


def test_folder_is_replaced_entirely(folder: Path) -> None:
    write_folder(folder, TENSORS, {}, {"step": 8})
    assert read_folder(folder)[2] == {"step": 8}
    assert not (folder / "replay.safetensors").exists()


def test_partial_checkpoints_of_a_killed_process_are_removed(folder: Path) -> None:
    leftover = partial(folder.with_name("000000009"))
    leftover.mkdir()
    (leftover / "agent.safetensors").write_bytes(b"half")
    write_folder(folder.with_name("000000008"), TENSORS, {}, {})
    assert sorted(os.listdir(folder.parent)) == ["000000007", "000000008"]


@pytest.mark.parametrize("point", ["fsync", "rename", "save_arrays"])
def test_full_disk_keeps_the_previous_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    owner: Any = {"fsync": os, "rename": Path, "save_arrays": storage}[point]
    monkeypatch.setattr(owner, point, disk_full)
    with pytest.raises(DiskError, match=r"the disk is full.*`resume`"):
        write_folder(folder.with_name("000000008"), TENSORS, ARRAYS, STATE)
    monkeypatch.undo()
    assert os.listdir(folder.parent) == [folder.name]
    assert read_folder(folder)[2] == STATE


def test_file_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_folder(tmp_path / "000000001", TENSORS, ARRAYS, STATE)
        write_json(tmp_path / "x.json", {})
    finally:
        os.umask(before)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.rglob("*") if path.is_file()}
    assert modes == dict.fromkeys(modes, "0o640")
    assert len(modes) == 5


# ---- reading checkpoint folders --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "truncated", "emptied", "flipped", "extended"])
def test_damage_to_any_file_is_detected(folder: Path, name: str, damage: str) -> None:
    path = folder / name
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    else:
        content[-2] ^= 1
        damaged = {"truncated": content[:-5], "emptied": b"", "flipped": content, "extended": content + b"x"}
        path.write_bytes(bytes(damaged[damage]))
    with pytest.raises(Damaged, match=name):
        read_folder(folder)


@pytest.mark.parametrize("content", [None, b"", b"[]", b"null", b"\xff"])
def test_folder_without_a_readable_manifest_is_damaged(folder: Path, content: bytes | None) -> None:
    (folder / "manifest.json").unlink()
    if content is not None:
        (folder / "manifest.json").write_bytes(content)
    with pytest.raises(Damaged, match=r"manifest|state\.json"):
        read_folder(folder)


def test_manifest_that_omits_the_state_is_damaged(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["state.json"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "state.json").unlink()
    with pytest.raises(Damaged):
        read_folder(folder)


def test_one_file_can_be_verified_alone(folder: Path) -> None:
    (folder / "replay.safetensors").unlink()
    assert verify(folder, only="agent.safetensors") == ["agent.safetensors"]
    (folder / "agent.safetensors").write_bytes(b"")
    with pytest.raises(Damaged):
        verify(folder, only="agent.safetensors")


@pytest.mark.parametrize("name", ["manifest.json", *FILES])
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_unreadable_file_is_not_damage(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    original = os.open

    def fail(path: Any, *args: Any, **kwargs: Any) -> int:
        if Path(path).name == name:
            raise OSError(number, os.strerror(number), str(path))
        return original(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(UserError, match=rf"{name} cannot be read.*Nothing was changed"):
        read_folder(folder)


def test_file_above_its_size_limit_is_refused_unread(folder: Path) -> None:
    os.truncate(folder / "agent.safetensors", 10**12)  # a sparse file: reading it would take an hour
    with pytest.raises(UserError, match=r"agent\.safetensors cannot be read: larger than"):
        read_folder(folder, {"agent": 10_000, "replay": 10_000})


@pytest.mark.parametrize("name", ["../precious", "/etc/hostname", "a/b", "..", ""])
def test_manifest_that_names_files_elsewhere_is_refused(folder: Path, name: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {name: "0"}))
    with pytest.raises(UserError, match="names files elsewhere"):
        read_folder(folder)


class Trap:
    """Unpickling it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", ["torch", "torch legacy", *range(6)])
@pytest.mark.parametrize("part", ["agent", "replay"])
def test_pickles_are_never_loaded(tmp_path: Path, folder: Path, kind: str | int, part: str) -> None:
    created, content = tmp_path / "created", io.BytesIO()
    trap = Trap(created)
    if isinstance(kind, int):
        pickle.dump(trap, content, kind)
        pickle.loads(content.getvalue())
        assert created.exists(), "the trap works"
        created.unlink()
    else:
        torch.save({"weight": trap}, content, _use_new_zipfile_serialization=kind == "torch")
    target = folder / f"{part}.safetensors"
    target.write_bytes(content.getvalue())
    with pytest.raises(Damaged, match=target.name):
        read_folder(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest[target.name] = storage.checksum(target)
    (folder / "manifest.json").write_text(json.dumps(manifest))  # even with the right checksum
    for read in (read_folder, lambda _: read_tensors(target), lambda _: read_arrays(target)):
        with pytest.raises(UserError, match=r"not a readable safetensors file.*never loads pickles"):
            read(folder)
    assert not created.exists()


def test_missing_weight_file_is_a_user_error(folder: Path) -> None:
    with pytest.raises(UserError, match=r"agent\.safetensors"):
        read_tensors(folder.with_name("elsewhere") / "agent.safetensors")


@pytest.mark.parametrize(
    ("change", "word"),
    [("missing", "missing"), ("surplus", "unexpected"), ("shape", r"\(2, 3\), .*expected \(3, 2\)")],
)
def test_weights_must_fit_exactly(change: str, word: str) -> None:
    module = torch.nn.Linear(2, 3)
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    if change == "missing":
        del weights["bias"]
    elif change == "surplus":
        weights["other"] = torch.zeros(1)
    else:
        weights["weight"] = weights["weight"].T
    before = module.weight.detach().clone()
    with pytest.raises(UserError, match=word):
        load_weights(module, weights, Path("a-run"))
    assert torch.equal(module.weight, before)
