"""Files that are whole or not there: JSON and checkpoint folders of safetensors. Never a pickle."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file as save_tensors

from cic.core.errors import UserError
from cic.core.files import open_regular, read_regular

if TYPE_CHECKING:
    from cic.runs.jsonl_log import LineLog

JSON_LIMIT = 64 << 20  # bytes; trials of a long search take a few
LOG_LIMIT = 1_000_000_000
CHUNK = 1 << 20
Arrays = dict[str, npt.NDArray[Any]]
Tensors = dict[str, torch.Tensor]
T = TypeVar("T")


def write_json(path: Path, content: Any) -> None:
    """Atomically: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.part")  # one name, so that what a killed process left is overwritten
    try:
        with create(temporary) as file:
            file.write(_pretty(content).encode())
            sync(file)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def create(path: Path) -> BinaryIO:
    """A new file in place of what is there: never what a link leads to, nor a file that has another name as well."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), "wb")


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


def sync(file: IO[Any]) -> None:
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


def write_folder(
    folder: Path, tensors: dict[str, Tensors], arrays: dict[str, Arrays], state: Any, logs: Iterable[LineLog] = ()
) -> None:
    """Under another name, synced and renamed: the folder is whole or it is not there. `logs` are copied as they are."""
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
        for log in logs:
            log.copy_to(temporary / log.path.name)
        (temporary / "state.json").write_text(json.dumps(state))
        manifest = {file.name: checksum(file) for file in sorted(temporary.iterdir())}
        (temporary / "manifest.json").write_text(json.dumps(manifest, indent=1))
        mode = (temporary / "state.json").stat().st_mode & 0o777
        for file in temporary.iterdir():
            file.chmod(mode)  # safetensors makes private files whatever the umask
            with open(file, "rb") as handle:
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


class DiskError(UserError):
    """A checkpoint that could not be written; the one before it is untouched."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"cannot write the checkpoint {folder}: {reason}. Make room, then continue with --resume")
        self.reason = reason


def _contiguous(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return value if value.flags.c_contiguous else value.copy()


def checksum(file: Path, limit: int | None = None) -> str:
    digest = hashlib.sha256()
    with open_regular(file, limit or file.stat().st_size) as handle:
        while chunk := handle.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def verify(folder: Path, only: str | None = None, limits: Mapping[str, int] | None = None) -> list[str]:
    """The names of a folder's files, if they are what was written.

    Only what was read and is wrong counts as damage. A file that cannot be read (no permission, a disk that fails for a
    moment) may be as good as ever, and one larger than the run can need is refused unread.
    """
    manifest = _manifest(folder)
    names = [only] if only else sorted({*manifest, "state.json"})
    broken = [name for name in names if _read_sum(folder / name, limits) != manifest.get(name, "")]
    if broken:
        _refuse_pickles(folder, broken)
        raise Damaged(f"the checkpoint {folder} is damaged ({', '.join(broken)} missing, cut off or changed)")
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


def _refuse_pickles(folder: Path, names: list[str]) -> None:
    for name in names:
        if (folder / name).is_file() and looks_like_pickle(folder / name):
            raise UserError(f"{folder / name} is a pickle, which can run any code: cic loads safetensors only")


def looks_like_pickle(path: Path) -> bool:
    """A bare pickle (protocol 2 and later) or torch.save's zip of one.

    A safetensors file begins with the length of its header, whose first bytes can be those of a pickle (640 is
    `80 02`); but the header follows, and its brace is where no pickle has one.
    """
    with open_regular(path, path.stat().st_size) as file:
        head = file.read(9)
    if head[4:] == b"\x00\x00\x00\x00{":
        return False
    return head[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05") or head[:4] == b"PK\x03\x04"


def read_folder(
    folder: Path, limits: Mapping[str, int] | None = None
) -> tuple[dict[str, Tensors], dict[str, Arrays], Any]:
    """What `write_folder` wrote; `limits` say how many bytes each safetensors file may have."""
    names = verify(folder, limits=limits)
    tensors, arrays = {}, {}
    for name in names:
        if not name.endswith(".safetensors"):
            continue
        stem = name.removesuffix(".safetensors")
        if stem in ("agent", "optimisers"):
            tensors[stem] = read_tensors(folder / name)
        else:
            arrays[stem] = read_arrays(folder / name)
    return tensors, arrays, read_json(folder / "state.json")


def read_tensors(path: Path) -> Tensors:
    """Weights from a safetensors file; anything else, pickles above all, is refused unread."""
    return _read(load_tensors, path)


def read_arrays(path: Path) -> Arrays:
    """The same as numpy arrays."""
    return _read(load_arrays, path)


def _read(load: Callable[[Path], dict[str, T]], path: Path) -> dict[str, T]:
    try:
        if looks_like_pickle(path):
            raise UserError(f"{path} is a pickle, which can run any code: cic loads safetensors only")
        return load(path)
    except UserError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from None
    except Exception as error:  # whatever a stranger's bytes make of a parser that is not ours
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
        given = weights[name]
        if (value.shape, value.dtype) != (given.shape, given.dtype):
            raise UserError(
                f"the weights of {where} do not fit its config: {name} is {tuple(given.shape)}, {given.dtype}; "
                f"expected {tuple(value.shape)}, {value.dtype}"
            )
    module.load_state_dict(weights)
