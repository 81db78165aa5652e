"""The trust boundary: only regular files, and only arrays of the expected layout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cic.core.errors import UserError
from cic.runs import untrusted
from cic.runs.untrusted import Misfit, check_folder, check_tree, open_regular, read_arrays, read_regular, require_arrays


def test_only_regular_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else is opened at all: opening a device can have effects, and a FIFO waits for its writer."""
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "fifo")
    assert read_regular(tmp_path / "file", 7) == b"content"
    with pytest.raises(OSError, match="larger than"):
        read_regular(tmp_path / "file", 6)
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opened"))
    for path in (tmp_path / "link", tmp_path / "fifo", tmp_path, Path("/dev/null")):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path, 100)


def test_own_paths_of_a_run_are_checked_and_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "notes").symlink_to("/")
    (tmp_path / "checkpoints" / "000000001").mkdir(parents=True)
    check_folder(tmp_path)
    (tmp_path / "checkpoints" / "000000001" / "state.json").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match=r"state.json is a link.*replace it by a copy"):
        check_folder(tmp_path)


def test_dangling_link_is_a_link(tmp_path: Path) -> None:
    check_tree(tmp_path / "export")
    (tmp_path / "export").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match="export is a link"):
        check_tree(tmp_path / "export")


def test_file_larger_than_the_free_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "replay.safetensors").write_bytes(b"x" * 100)
    monkeypatch.setattr(untrusted, "available_memory", lambda: 100)
    with pytest.raises(UserError, match="larger than"):
        read_arrays(tmp_path / "replay.safetensors")


LAYOUT = {"obs": "float32 steps obs", "action": "float steps action", "last": "float32? obs", "count": "int64 one"}
GOOD: dict[str, Any] = {
    "obs": np.zeros((4, 3), np.float32),
    "action": np.zeros((4, 2), np.float16),
    "last": np.full(3, np.nan, np.float32),
    "count": np.zeros(1, np.int64),
}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"obs": np.zeros((4, 3))}, "obs is float64"),
        ({"obs": np.zeros(4, np.float32)}, "obs is float32"),
        ({"obs": np.full((4, 3), np.inf, np.float32)}, "obs contains NaN, or values beyond"),
        ({"obs": np.full((4, 3), 2e9, np.float32)}, "values beyond"),
        ({"action": np.zeros((5, 2), np.float32)}, "steps=4"),
        ({"action": np.zeros((4, 2), np.int64)}, "action is int64"),
        ({"last": np.zeros(2, np.float32)}, "obs=3"),
        ({"count": np.zeros(2, np.int64)}, "one=1"),
        ({"more": np.zeros(1)}, "the arrays are"),
    ],
)
def test_arrays_of_another_layout_are_refused(change: dict[str, Any], word: str) -> None:
    require_arrays(GOOD, LAYOUT, one=1, obs=3)
    with pytest.raises(Misfit, match=word):
        require_arrays(GOOD | change, LAYOUT, one=1, obs=3)
    with pytest.raises(Misfit, match="obs=7"):
        require_arrays(GOOD, LAYOUT, one=1, obs=7)
