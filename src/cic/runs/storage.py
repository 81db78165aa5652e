"""Files that are whole or not there: JSON, JSONL and checkpoint folders of safetensors. Never a pickle."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file as save_tensors

from cic.core.errors import UserError
from cic.core.files import read_regular

JSON_LIMIT = 64 << 20  # bytes; trials of a long search take a few
Arrays = dict[str, npt.NDArray[Any]]
Tensors = dict[str, torch.Tensor]
T = TypeVar("T")


def write_json(path: Path, content: Any) -> None:
    """Atomically: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.part")  # one name, so that what a killed process left is overwritten
    try:
        with open(temporary, "w") as file:
            file.write(_pretty(content))
            _sync(file)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _pretty(content: Any) -> str:
    """Indented, but with lists of numbers (skills, returns) on one line."""
    text = json.dumps(content, indent=1)
    return re.sub(r"\[[^\[\]{}\"]*\]", lambda numbers: " ".join(numbers.group().split()), text) + "\n"


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_regular(path, JSON_LIMIT))
    except FileNotFoundError:
        raise UserError(f"{path} is missing: is {path.parent} a run folder?") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from None


def _sync(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Damaged(Exception):
    """A checkpoint that is incomplete or whose checksums do not match."""


def write_folder(folder: Path, tensors: dict[str, Tensors], arrays: dict[str, Arrays], state: Any) -> None:
    temporary = folder.with_name(f".{folder.name}")
    try:
        folder.parent.mkdir(exist_ok=True)
        for leftover in folder.parent.glob(".*"):  # of a process that was killed while writing; nobody else's
            if leftover == temporary or leftover.name[1:].isdigit():
                shutil.rmtree(leftover, ignore_errors=True)
        temporary.mkdir()
        for name, content in tensors.items():
            save_tensors({key: value.contiguous() for key, value in content.items()}, temporary / f"{name}.safetensors")
        for name, values in arrays.items():
            save_arrays({key: _contiguous(value) for key, value in values.items()}, temporary / f"{name}.safetensors")
        (temporary / "state.json").write_text(json.dumps(state))
        manifest = {file.name: _checksum(file) for file in sorted(temporary.iterdir())}
        (temporary / "manifest.json").write_text(json.dumps(manifest, indent=1))
        for file in temporary.iterdir():
            with open(file, "rb") as handle:
                os.fsync(handle.fileno())
        _sync_folder(temporary)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
        _sync_folder(folder.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
        raise DiskError(folder, "the disk is full" if full else str(error)) from error


class DiskError(UserError):
    """A checkpoint that could not be written; the one before it is untouched."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"cannot write the checkpoint {folder}: {reason}. Make room, then continue with --resume")


def _contiguous(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return value if value.flags.c_contiguous else value.copy()


def _checksum(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as handle:
        while chunk := handle.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def verify(folder: Path, only: str | None = None) -> list[str]:
    try:
        manifest = dict(json.loads((folder / "manifest.json").read_text()))
        names = [only] if only else sorted({*manifest, "state.json"})
        broken = [
            name for name in names if not (folder / name).is_file() or _checksum(folder / name) != manifest.get(name)
        ]
    except (OSError, ValueError, TypeError):
        raise Damaged(f"the checkpoint {folder} has no readable manifest") from None
    if broken:
        _refuse_pickles(folder, broken)
        raise Damaged(f"the checkpoint {folder} is damaged ({', '.join(broken)} missing, cut off or changed)")
    return names


def _refuse_pickles(folder: Path, names: list[str]) -> None:
    for name in names:
        if (folder / name).is_file() and looks_like_pickle(folder / name):
            raise UserError(f"{folder / name} is a pickle, which can run any code: cic loads safetensors only")


def looks_like_pickle(path: Path) -> bool:
    """A bare pickle (protocol 2 and later) or torch.save's zip of one."""
    with open(path, "rb") as file:
        head = file.read(8)
    return head[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05") or head[:4] == b"PK\x03\x04"


def read_folder(folder: Path) -> tuple[dict[str, Tensors], dict[str, Arrays], Any]:
    names = verify(folder)
    tensors, arrays = {}, {}
    for name in names:
        if not name.endswith(".safetensors"):
            continue
        stem = name.removesuffix(".safetensors")
        if stem in ("agent", "optimisers"):
            tensors[stem] = read_tensors(folder / name)
        else:
            arrays[stem] = _read(load_arrays, folder / name)
    return tensors, arrays, json.loads((folder / "state.json").read_text())


def read_tensors(path: Path) -> Tensors:
    """Weights from a safetensors file; anything else, pickles above all, is refused unread."""
    return _read(load_tensors, path)


def _read(load: Callable[[Path], dict[str, T]], path: Path) -> dict[str, T]:
    try:
        if looks_like_pickle(path):
            raise UserError(f"{path} is a pickle, which can run any code: cic loads safetensors only")
        return load(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise UserError(f"{path} is not a readable safetensors file: {error}") from None


def load_weights(module: torch.nn.Module, weights: Tensors, where: Path) -> None:
    """Strictly: every tensor there, of the right shape, and no others."""
    own = module.state_dict()
    missing = sorted(own.keys() - weights.keys())
    surplus = sorted(weights.keys() - own.keys())
    if missing or surplus:
        raise UserError(
            f"the weights of {where} do not fit its config: missing {missing[:3]}, unexpected {surplus[:3]}"
        )
    for name, value in own.items():
        if value.shape != weights[name].shape:
            raise UserError(
                f"the weights of {where} do not fit its config: {name} is {tuple(weights[name].shape)}, "
                f"expected {tuple(value.shape)}"
            )
    module.load_state_dict(weights)


class LineLog:
    """A JSONL file that continues from a known length."""

    def __init__(self, path: Path, size: int = 0) -> None:
        self._file = open(path, "ab")  # noqa: SIM115  closed by `close`
        self._file.truncate(size)
        self._file.seek(0, os.SEEK_END)  # truncating moves nothing, and `size` may be asked before a line is written

    def write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()

    def size(self) -> int:
        """Bytes on disk for certain."""
        _sync(self._file)
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
