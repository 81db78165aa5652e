"""The trust boundary: everything that is read from a run folder passes through this module.

A run folder may come from anybody and may contain any bytes, with valid checksums. The functions here open only
regular files of a limited size, execute nothing, and return plain data of the expected types, shapes and ranges:

    check_folder, walk          files and folders only; links, FIFOs and devices are never followed or opened
    open_regular, read_regular  bytes
    read_object                 JSON
    read_arrays, read_tensors   safetensors
    require_arrays              names, types, shapes and finite values of arrays
    plain, number, integer      single values of a JSON document

`cic.training.loading` and `cic.training.checkpoint_checks` make agents, skills and replays of this data.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from cic.core.errors import UserError
from cic.core.memory import available_memory
from cic.runs import names
from cic.runs.bundled import is_bundled

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

Arrays = dict[str, "npt.NDArray[Any]"]
Tensors = dict[str, "torch.Tensor"]
T = TypeVar("T")

JSON_LIMIT = 64 << 20  # bytes; the trials of a long search take a few
_LETTERS = 500
_LEVELS = 20
_LARGEST = 1e100
LARGEST_VALUE = 1e9
"""Of arrays: the largest observation and reward of an environment, see `cic.envs.gym`."""
# Opening a FIFO would wait for its writer without O_NONBLOCK. Windows has no such flag and needs O_BINARY instead.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


# ---- folders ---------------------------------------------------------------------------------------------------


def check_folder(folder: Path) -> None:
    """Raise a `UserError` if one of a run's own paths is a link or a special file.

    Call it once before reading or writing a run folder. The folder itself may be a link, because the user named it.
    """
    if is_bundled(folder):
        return
    for name in names.FILES:
        _require_plain(folder / name)
        _require_plain(names.partial(folder / name))
    for name in names.FOLDERS:
        check_tree(folder / name)
        check_tree(names.partial(folder / name))


def check_tree(path: Path) -> None:
    """Raise a `UserError` if a path, or anything below it, is a link or a special file. It need not exist."""
    _require_plain(path)
    for found, below, files in os.walk(path):
        for name in (*below, *files):
            _require_plain(Path(found, name))


def _require_plain(path: Path) -> None:
    try:
        kind = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        what = "a link" if stat.S_ISLNK(kind) else "not a regular file"
        raise UserError(f"{path} is {what}, and a run folder may contain only files and folders: replace it by a copy")


def walk(root: Path, skipped: set[str]) -> Iterator[tuple[Path, set[str]]]:
    """Yield the folders at and below `root` with the names inside. Links to folders are not followed."""
    for path, below, files in os.walk(root):
        below[:] = sorted(set(below) - skipped)
        yield Path(path), {*files, *below}


# ---- files -----------------------------------------------------------------------------------------------------


def open_regular(path: Path, limit: int) -> BinaryIO:
    """Open a file for reading, but only a regular file of at most `limit` bytes.

    A FIFO would block the reader for ever; a device or a sparse file would never end; a link may lead anywhere.
    """
    if not stat.S_ISREG(path.lstat().st_mode):  # before opening: opening a device can have effects
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    descriptor = os.open(path, _FLAGS)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if found.st_size > limit:
            raise OSError(errno.EFBIG, f"larger than {limit / 1e6:g} MB", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes."""
    with open_regular(path, limit) as file:
        return file.read()


# ---- JSON ------------------------------------------------------------------------------------------------------


def read_object(path: Path) -> dict[str, Any] | str:
    """Read a JSON object, or return what is wrong with the file."""
    try:
        document = json.loads(read_regular(path, JSON_LIMIT))
    except OSError as error:
        return f"{path.name} cannot be read ({error.strerror})"
    except (ValueError, RecursionError):
        return f"{path.name} is not valid JSON"
    if not isinstance(document, dict):
        return f"{path.name} is not a JSON object"
    return document if _is_shallow(document) else f"{path.name} is nested too deeply"


def _is_shallow(document: Any) -> bool:
    """Whether it has few enough levels for recursive functions."""
    level = [document]
    for _ in range(_LEVELS):
        inside = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [item for items in inside for item in items]
    return not level


def plain(value: Any) -> str:
    """Text that a terminal or a page can show: of limited length, without control characters."""
    return "".join(letter if letter.isprintable() else "�" for letter in str(value)[:_LETTERS])


def number(value: Any) -> float:
    """The value as a float; NaN if it is not a number, or too large for sums and axes."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST
    return float(value) if known else math.nan


def integer(value: Any) -> int:
    """The value as an integer; 0 if it is not a number."""
    found = number(value)
    return int(found) if math.isfinite(found) else 0


# ---- arrays ----------------------------------------------------------------------------------------------------


def read_tensors(path: Path) -> Tensors:
    """Read a safetensors file as torch tensors. Anything else, such as a pickle, is refused."""
    from safetensors.torch import load_file

    return _read(load_file, path)


def read_arrays(path: Path) -> Arrays:
    """Read a safetensors file as numpy arrays. Anything else, such as a pickle, is refused."""
    from safetensors.numpy import load_file

    return _read(load_file, path)


def _read(load: Callable[[Path], dict[str, T]], path: Path) -> dict[str, T]:
    try:
        open_regular(path, (available_memory() or sys.maxsize) // 2).close()
        return load(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}. Nothing was changed") from None
    except Exception as error:  # the parser is not ours, and the bytes may be anyone's
        raise UserError(f"{path} is not a readable safetensors file ({error}); cic never loads pickles") from None


class Misfit(ValueError):
    """Data of a run folder that is impossible, or that does not fit the rest of the folder."""


def require_arrays(arrays: Mapping[str, npt.NDArray[Any]], layout: Mapping[str, str], **sizes: int) -> None:
    """Raise a `Misfit` unless the arrays have these names, types and shapes, and values with which one can compute.

    Args:
        arrays: What was read.
        layout: For each name the type and the dimensions: `"float32 steps obs"`. A dimension of the same name has the
            same size everywhere. `float` is any floating-point type, and `float32?` may contain any values.
        **sizes: The sizes that are known.
    """
    import numpy as np

    if arrays.keys() != layout.keys():
        raise Misfit(f"the arrays are {sorted(map(plain, arrays))}, not {sorted(layout)}")
    for name, description in layout.items():
        array, (kind, *dimensions) = arrays[name], description.split()
        fits = array.dtype.kind == "f" if kind == "float" else array.dtype.name == kind.rstrip("?")
        fits = fits and array.ndim == len(dimensions)
        if not fits or any(sizes.setdefault(one, size) != size for one, size in zip(dimensions, array.shape)):  # noqa: B905
            wanted = ", ".join(f"{one}={sizes.get(one, 'any')}" for one in dimensions)
            raise Misfit(f"{name} is {array.dtype} {array.shape}, not {kind.rstrip('?')} ({wanted})")
        if (
            array.dtype.kind == "f"
            and not kind.endswith("?")
            and not (np.abs(array, dtype=np.float64) <= LARGEST_VALUE).all()
        ):
            raise Misfit(f"{name} contains NaN, or values beyond {LARGEST_VALUE:g}")
