"""Atomic writes and verified reads: JSON files and checkpoint folders of safetensors. Nothing is a pickle.

A writer creates everything under a partial name that only cic uses (`partial`), syncs it and renames it. A reader
therefore finds the old version, the new version or nothing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file as save_tensors

from cic.core.errors import UserError
from cic.runs.names import PARTIAL, partial
from cic.runs.untrusted import (
    JSON_LIMIT,
    Arrays,
    Tensors,
    open_regular,
    read_arrays,
    read_object,
    read_regular,
    read_tensors,
)

if TYPE_CHECKING:
    from cic.runs.jsonl_log import JsonlLog

LOG_LIMIT = 1_000_000_000
CHUNK = 1 << 20
_TENSORS = ("agent", "optimisers")
"""The parts of a checkpoint that are read as torch tensors; all others are numpy arrays."""


class Damaged(Exception):
    """A checkpoint folder is incomplete, or a checksum does not match."""


class DiskError(UserError):
    """A checkpoint could not be written; the previous one is unchanged."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"cannot write the checkpoint {folder}: {reason}. Fix this, then continue with `resume`")
        self.reason = reason


# ---- JSON ------------------------------------------------------------------------------------------------------


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    temporary = partial(path)
    try:
        with create(temporary) as file:
            file.write(_pretty(content).encode())
            sync(file)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def create(path: Path) -> BinaryIO:
    """Create a new file in place of an existing one. Never writes through a symbolic or a hard link."""
    path.unlink(missing_ok=True)
    return open(path, "xb")


def sync(file: IO[Any]) -> None:
    """Write a file's content to the disk."""
    file.flush()
    os.fsync(file.fileno())


def _pretty(content: Any) -> str:
    """Indented JSON, but with lists of numbers (skills, returns) on one line."""
    text = json.dumps(content, indent=1)
    return re.sub(r"\[[^\[\]{}\"]*\]", lambda numbers: " ".join(numbers.group().split()), text) + "\n"


# ---- checkpoint folders: writing -------------------------------------------------------------------------------


def write_folder(
    folder: Path, tensors: dict[str, Tensors], arrays: dict[str, Arrays], state: Any, logs: Iterable[JsonlLog] = ()
) -> None:
    """Write a checkpoint folder atomically, with a checksum for each file. `logs` are copied into it."""
    temporary = partial(folder)
    try:
        folder.parent.mkdir(exist_ok=True)
        _remove_partial_folders(folder)
        temporary.mkdir()
        for name, content in tensors.items():
            save_tensors({key: value.contiguous() for key, value in content.items()}, temporary / f"{name}.safetensors")
        for name, values in arrays.items():
            save_arrays({key: _contiguous(value) for key, value in values.items()}, temporary / f"{name}.safetensors")
        for log in logs:
            log.copy_to(temporary / log.path.name)
        (temporary / "state.json").write_text(json.dumps(state))
        manifest = {file.name: checksum(file) for file in sorted(temporary.iterdir())}
        (temporary / "manifest.json").write_text(json.dumps(manifest, indent=1))
        mode = (temporary / "state.json").stat().st_mode & 0o777
        for file in temporary.iterdir():
            file.chmod(mode)  # safetensors creates private files whatever the umask
            with open(file, "r+b") as handle:
                os.fsync(handle.fileno())
        _sync_folder(temporary)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
        _sync_folder(folder.parent)
    except (OSError, SafetensorError) as error:
        full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
        raise DiskError(folder, "the disk is full" if full else str(error)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_partial_folders(folder: Path) -> None:
    """Remove what a killed process left: this folder's partial one, and those of other checkpoints next to it."""
    shutil.rmtree(partial(folder), ignore_errors=True)
    for leftover in folder.parent.glob(f".*{PARTIAL}"):
        if leftover.name[1 : -len(PARTIAL)].isdigit():
            shutil.rmtree(leftover, ignore_errors=True)


def _sync_folder(path: Path) -> None:
    """Write a folder's entries to the disk. Windows can neither do this nor needs it."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _contiguous(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return value if value.flags.c_contiguous else value.copy()


def checksum(file: Path, limit: int | None = None) -> str:
    """The SHA-256 of a file, which must not exceed `limit` bytes."""
    digest = hashlib.sha256()
    with open_regular(file, limit or file.stat().st_size) as handle:
        while chunk := handle.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


# ---- checkpoint folders: reading -------------------------------------------------------------------------------


def verify(folder: Path, only: str | None = None, limits: Mapping[str, int] | None = None) -> list[str]:
    """Compare checksums and return the names of the files; `only` checks a single one.

    Raises:
        Damaged: a file was read and differs from what was written, or is missing.
        UserError: a file cannot be read (no permission, a failing disk) or exceeds its limit. It may be intact.
    """
    manifest = _manifest(folder)
    names = [only] if only else sorted({*manifest, "state.json"})
    broken = [name for name in names if _read_sum(folder / name, limits) != manifest.get(name, "")]
    if broken:
        raise Damaged(f"the checkpoint {folder} is damaged ({', '.join(broken)} missing, truncated or changed)")
    return names


def _manifest(folder: Path) -> dict[str, str]:
    try:
        manifest = json.loads(read_regular(folder / "manifest.json", JSON_LIMIT))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        manifest = None
    except OSError as error:
        raise _unreadable(folder / "manifest.json", error) from None
    if not isinstance(manifest, dict):
        raise Damaged(f"the checkpoint {folder} has no readable manifest")
    if any(Path(name).name != name or name in ("", "..") for name in manifest):
        raise UserError(f"the manifest of the checkpoint {folder} names files elsewhere: it was not written by cic")
    return manifest


def _read_sum(path: Path, limits: Mapping[str, int] | None) -> str | None:
    """The checksum of a file; None if there is no such file."""
    known = {".json": JSON_LIMIT, ".jsonl": LOG_LIMIT}.get(path.suffix)
    try:
        return checksum(path, known or (None if limits is None else limits.get(path.stem, 1)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} cannot be read: {error.strerror or error}. Nothing was changed")


def read_folder(
    folder: Path, limits: Mapping[str, int] | None = None
) -> tuple[dict[str, Tensors], dict[str, Arrays], dict[str, Any]]:
    """Read what `write_folder` wrote. `limits` are the bytes that each safetensors file may have."""
    tensors, arrays = {}, {}
    for name in verify(folder, limits=limits):
        part = name.removesuffix(".safetensors")
        if part == name:
            continue
        if part in _TENSORS:
            tensors[part] = read_tensors(folder / name)
        else:
            arrays[part] = read_arrays(folder / name)
    state = read_object(folder / "state.json")
    if isinstance(state, str):
        raise UserError(f"{folder}: {state}: it was not written by cic")
    return tensors, arrays, state


def load_weights(module: torch.nn.Module, weights: Tensors, where: Path) -> None:
    """Load weights into a module. Names, shapes and types must match exactly, and all values must be finite."""
    own = module.state_dict()
    missing = sorted(own.keys() - weights.keys())
    surplus = sorted(weights.keys() - own.keys())
    if missing or surplus:
        raise UserError(
            f"the weights of {where} do not fit its config: missing {missing[:3]}, unexpected {surplus[:3]}"
        )
    for name, value in own.items():
        given = weights[name]
        if (value.shape, value.dtype) != (given.shape, given.dtype):
            raise UserError(
                f"the weights of {where} do not fit its config: {name} is {tuple(given.shape)}, {given.dtype}; "
                f"expected {tuple(value.shape)}, {value.dtype}"
            )
        if given.is_floating_point() and not bool(torch.isfinite(given).all()):
            raise UserError(f"the weights of {where} contain NaN or infinity in {name}: use those of another step")
    module.load_state_dict(weights)
