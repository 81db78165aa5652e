"""Files are whole or not there, and never a pickle."""

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
from safetensors.torch import save_file

from cic.core.errors import UserError
from cic.runs import storage
from cic.runs.jsonl_log import LineLog
from cic.runs.storage import (
    Damaged,
    DiskError,
    load_weights,
    looks_like_pickle,
    read_folder,
    read_json,
    read_tensors,
    verify,
    write_folder,
    write_json,
)

TENSORS = {"agent": {"weight": torch.arange(12.0).reshape(3, 4).T, "count": torch.tensor(3)}}
ARRAYS = {"replay": {"obs": np.arange(24, dtype=np.float32).reshape(2, 3, 4)[:, :2], "flag": np.array([True, False])}}
STATE = {"step": 7, "rng": {"state": 2**100}, "nothing": None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoints" / "000000007"
    write_folder(path, TENSORS, ARRAYS, STATE)
    return path


# ---- JSON ------------------------------------------------------------------------------------------------------


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    content = {
        "a": [1, 2.5, None, True],
        "nested": {"skills": [[0.1, 0.2], [0.3]]},
        "text": 'a [1,\n 2] "b"',
        "none": [],
    }
    write_json(tmp_path / "x.json", content)
    assert read_json(tmp_path / "x.json") == content
    assert os.listdir(tmp_path) == ["x.json"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    write_json(tmp_path / "x.json", {"old": 1})

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space"):
        write_json(tmp_path / "x.json", {"new": 2})
    monkeypatch.undo()
    assert read_json(tmp_path / "x.json") == {"old": 1}
    assert os.listdir(tmp_path) == ["x.json"]


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"\xff\xfe\x00", b"\x80\x04K\x01."])
def test_damaged_json_is_the_users_error_with_the_path(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(UserError, match=r"x\.json is damaged"):
        read_json(tmp_path / "x.json")


def test_missing_json_is_the_users_error_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x\.json is missing"):
        read_json(tmp_path / "x.json")


# ---- lines -----------------------------------------------------------------------------------------------------


def test_lines_continue_from_a_checkpoints_copy(tmp_path: Path) -> None:
    path, copy = tmp_path / "metrics.jsonl", tmp_path / "copy.jsonl"
    log = LineLog(path)
    log.write({"step": 1})
    log.copy_to(copy)
    log.write({"step": 2})
    log.close()
    again = LineLog(path, copy)
    again.write({"step": 3})
    again.copy_to(tmp_path / "second.jsonl")
    again.close()
    assert path.read_text() == '{"step": 1}\n{"step": 3}\n' == (tmp_path / "second.jsonl").read_text()
    assert copy.read_text() == '{"step": 1}\n'


@pytest.mark.parametrize("harm", ["short", "flipped", "zeroed", "empty", "missing", "fifo"])
def test_a_log_that_was_harmed_is_restored_with_a_warning(tmp_path: Path, harm: str) -> None:
    """A short file used to be padded with zeros, other changes passed unnoticed."""
    path, copy = tmp_path / "metrics.jsonl", tmp_path / "copy.jsonl"
    copy.write_bytes(b'{"step": 1}\n{"step": 2}\n')
    content = {"short": b'{"step": 1}\n', "flipped": b'{"step": 1}\n{"step": 3}\n', "zeroed": bytes(24), "empty": b""}
    if harm == "fifo":
        os.mkfifo(path)
    elif harm != "missing":
        path.write_bytes(content[harm])
    with pytest.warns(UserWarning, match=r"metrics\.jsonl was lost or changed; it is restored"):
        log = LineLog(path, copy)
    log.write({"step": 3})
    log.close()
    assert path.read_bytes() == b'{"step": 1}\n{"step": 2}\n{"step": 3}\n'


@pytest.mark.parametrize("harm", [b"", b'{"step": 7}\n', None])
def test_a_log_that_somebody_changes_meanwhile_is_not_taken_for_good(tmp_path: Path, harm: bytes | None) -> None:
    log = LineLog(tmp_path / "metrics.jsonl")
    log.write({"step": 1})
    if harm is None:
        (tmp_path / "metrics.jsonl").unlink()
    else:
        (tmp_path / "metrics.jsonl").write_bytes(harm)
    with pytest.raises(UserError, match=r"was changed while the run was writing it.*--resume"):
        log.copy_to(tmp_path / "copy.jsonl")
    log.close()


def test_a_new_log_starts_empty(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"of a run that was killed before its first checkpoint\n")
    log = LineLog(path)
    log.close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_neither_lines_nor_json_are_written_through_a_link(tmp_path: Path, link: str) -> None:
    """The target may be any file of the user's; a hard link may be a backup's."""
    target = tmp_path / "precious"
    target.write_text("mine")
    for name in ("metrics.jsonl", ".metrics.jsonl.part", "x.json", ".x.json.part"):
        (tmp_path / name).hardlink_to(target) if link == "hard" else (tmp_path / name).symlink_to(target)
    log = LineLog(tmp_path / "metrics.jsonl")
    log.write({"step": 1})
    log.close()
    write_json(tmp_path / "x.json", {"a": 1})
    assert target.read_text() == "mine"
    assert read_json(tmp_path / "x.json") == {"a": 1}


# ---- checkpoint folders ----------------------------------------------------------------------------------------


def test_a_folder_comes_back_as_it_was(folder: Path) -> None:
    tensors, arrays, state = read_folder(folder)
    assert state == STATE
    assert {name: value.tolist() for name, value in tensors["agent"].items()} == {
        name: value.tolist() for name, value in TENSORS["agent"].items()
    }
    for name, value in ARRAYS["replay"].items():
        assert arrays["replay"][name].dtype == value.dtype
        np.testing.assert_array_equal(arrays["replay"][name], value)
    assert sorted(os.listdir(folder.parent)) == [folder.name]


def test_a_folder_is_replaced_whole(folder: Path) -> None:
    write_folder(folder, TENSORS, {}, {"step": 8})
    assert read_folder(folder)[2] == {"step": 8}
    assert not (folder / "replay.safetensors").exists()


def test_what_a_killed_process_left_is_swept(folder: Path) -> None:
    leftover = folder.with_name(".000000009")
    leftover.mkdir()
    (leftover / "agent.safetensors").write_bytes(b"half")
    write_folder(folder.with_name("000000008"), TENSORS, {}, {})
    assert sorted(os.listdir(folder.parent)) == ["000000007", "000000008"]


FILES = ["agent.safetensors", "replay.safetensors", "state.json"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", ["missing", "truncated", "emptied", "flipped", "extended"])
def test_any_harm_to_any_file_is_noticed(folder: Path, name: str, harm: str) -> None:
    path = folder / name
    content = bytearray(path.read_bytes())
    if harm == "missing":
        path.unlink()
    else:
        content[-2] ^= 1
        harmed = {"truncated": content[:-5], "emptied": b"", "flipped": content, "extended": content + b"x"}
        path.write_bytes(bytes(harmed[harm]))
    with pytest.raises(Damaged, match=name):
        read_folder(folder)


@pytest.mark.parametrize("content", [None, b"", b"[]", b"null", b"\xff"])
def test_a_folder_without_a_readable_manifest_is_damaged(folder: Path, content: bytes | None) -> None:
    (folder / "manifest.json").unlink()
    if content is not None:
        (folder / "manifest.json").write_bytes(content)
    with pytest.raises(Damaged, match=r"manifest|state\.json"):
        read_folder(folder)


def test_a_folder_whose_state_is_not_listed_is_damaged(folder: Path) -> None:
    """A manifest that forgets a file must not make the check pass."""
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


@pytest.mark.parametrize("point", ["fsync", "rename", "save_arrays"])
def test_a_full_disk_is_said_and_leaves_the_checkpoint_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    owner: Any = {"fsync": os, "rename": Path, "save_arrays": storage}[point]
    monkeypatch.setattr(owner, point, fail)
    with pytest.raises(DiskError, match=r"the disk is full.*--resume"):
        write_folder(folder.with_name("000000008"), TENSORS, ARRAYS, STATE)
    monkeypatch.undo()
    assert os.listdir(folder.parent) == [folder.name]
    assert read_folder(folder)[2] == STATE


def test_every_file_has_the_mode_that_the_umask_asks_for(tmp_path: Path) -> None:
    """Whoever shares a folder with a group must find its weights readable."""
    before = os.umask(0o027)
    try:
        write_folder(tmp_path / "000000001", TENSORS, ARRAYS, STATE)
        write_json(tmp_path / "x.json", {})
    finally:
        os.umask(before)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.rglob("*") if path.is_file()}
    assert modes == dict.fromkeys(modes, "0o640")
    assert len(modes) == 5


@pytest.mark.parametrize("name", ["manifest.json", *FILES])
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_what_cannot_be_read_is_not_taken_for_damage(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    original = os.open

    def fail(path: Any, *args: Any, **kwargs: Any) -> int:
        if Path(path).name == name:
            raise OSError(number, os.strerror(number), str(path))
        return original(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(UserError, match=rf"{name} cannot be read.*Nothing was changed"):
        read_folder(folder)


def test_a_file_larger_than_the_run_can_need_is_refused_unread(folder: Path) -> None:
    os.truncate(folder / "agent.safetensors", 10**12)  # a sparse file: reading it would take an hour
    with pytest.raises(UserError, match=r"agent\.safetensors cannot be read: larger than"):
        read_folder(folder, {"agent": 10_000, "replay": 10_000})


@pytest.mark.parametrize("name", ["../precious", "/etc/hostname", "a/b", "..", ""])
def test_a_manifest_that_names_files_elsewhere_is_refused(folder: Path, name: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {name: "0"}))
    with pytest.raises(UserError, match="names files elsewhere"):
        read_folder(folder)


# ---- never a pickle --------------------------------------------------------------------------------------------


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def pickles(trap: Trap) -> dict[str, bytes]:
    modern, legacy = io.BytesIO(), io.BytesIO()
    torch.save({"weight": trap}, modern)
    torch.save({"weight": trap}, legacy, _use_new_zipfile_serialization=False)
    bare = {f"protocol {protocol}": pickle.dumps(trap, protocol) for protocol in range(6)}
    return {"torch": modern.getvalue(), "torch legacy": legacy.getvalue(), **bare}


KINDS = ["torch", "torch legacy", *(f"protocol {protocol}" for protocol in range(6))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickle_is_refused_and_never_loaded(tmp_path: Path, folder: Path, kind: str) -> None:
    sprung = tmp_path / "sprung"
    content = pickles(Trap(sprung))[kind]
    if kind.startswith("protocol"):
        pickle.loads(content)
        assert sprung.exists(), "it is a trap indeed"
        sprung.unlink()
    target = folder / "agent.safetensors"
    target.write_bytes(content)
    with pytest.raises(UserError, match="safetensors"):
        read_tensors(target)
    with pytest.raises((UserError, Damaged), match="safetensors"):
        read_folder(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["agent.safetensors"] = storage.checksum(target)
    (folder / "manifest.json").write_text(json.dumps(manifest))  # even if its checksum is right
    with pytest.raises(UserError, match="safetensors"):
        read_folder(folder)
    assert not sprung.exists()


@pytest.mark.parametrize("kind", ["torch", "torch legacy", "protocol 2", "protocol 5"])
def test_pickles_are_called_by_their_name(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "agent.safetensors"
    path.write_bytes(pickles(Trap(tmp_path / "sprung"))[kind])
    assert looks_like_pickle(path)
    with pytest.raises(UserError, match="pickle"):
        read_tensors(path)


def test_arrays_that_are_a_pickle_are_refused_even_with_a_right_checksum(tmp_path: Path, folder: Path) -> None:
    sprung, target = tmp_path / "sprung", folder / "replay.safetensors"
    target.write_bytes(pickle.dumps(Trap(sprung)))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["replay.safetensors"] = storage.checksum(target)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="pickle"):
        read_folder(folder)
    assert not sprung.exists()


def test_safetensors_are_no_pickles(folder: Path) -> None:
    assert not looks_like_pickle(folder / "agent.safetensors")
    assert not looks_like_pickle(folder / "replay.safetensors")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_header_whose_length_looks_like_a_pickle_is_none(tmp_path: Path, protocol: int) -> None:
    """640, 896, 1,152 and 1,408 begin with the bytes of a pickle."""
    path, length = tmp_path / "agent.safetensors", 128 + 256 * protocol
    for letters in range(length):
        save_file({"w" * (letters + 1): torch.ones(2)}, path)
        if int.from_bytes(path.read_bytes()[:8], "little") == length:
            break
    assert path.read_bytes()[:2] == bytes([0x80, protocol])
    assert not looks_like_pickle(path)
    assert [value.tolist() for value in read_tensors(path).values()] == [[1, 1]]


def test_a_missing_weight_file_is_the_users_error(folder: Path) -> None:
    with pytest.raises(UserError, match=r"agent\.safetensors"):
        read_tensors(folder.with_name("elsewhere") / "agent.safetensors")


# ---- weights ---------------------------------------------------------------------------------------------------


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


def test_a_copied_folder_is_still_whole(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.move(folder, moved)
    assert read_folder(moved)[2] == STATE
