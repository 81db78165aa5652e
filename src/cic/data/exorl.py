"""Read ExORL's format (Yarats et al. 2022): an npz per episode, `<domain>/<method>/buffer/<word>_<index>_<T>.npz`.

Each array has T + 1 rows. Row 0 is the reset: zero action, reward 0, discount 1. Row t is what led to observation t.
`physics` is the simulator's state, from which rewards are recomputed. Files that `cic export` wrote also have `skill`,
the skill that acted, and `reward_<task>`, the reward of each task of the domain.

Files are read with `allow_pickle=False`, so nothing in them is executed. A file may be a link to a regular file.
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.memory import available_memory
from cic.learning.replay import Episode
from cic.runs.untrusted import LARGEST_VALUE, open_regular

REWARD = "reward_"
"""Prefix of the arrays with the rewards of a task."""
_FILES_AT_ONCE = 64
_THREADS = 4
_REQUIRED = ("observation", "action", "reward", "discount")


def find_episodes(folder: Path) -> list[Path]:
    """The files of a dataset in the order of their names: of the folder itself, or of `buffer/` in it."""
    for place in (folder, folder / "buffer"):
        if files := sorted(place.glob("*.npz")):
            return files
    raise UserError(f"{folder} contains no .npz episodes: give the folder named buffer, or the one that contains it")


def domain_of(folder: Path) -> str:
    """The name of the folder that is the domain in `<domain>/<method>/buffer`."""
    path = folder.resolve()
    return path.parent.parent.name if path.name == "buffer" else path.parent.name


def read_exorl(folder: Path | str, steps: int | None = None) -> Iterator[Episode]:
    """Yield the episodes of a folder in the order of their names, until they have `steps` steps.

    Files are decompressed by several threads, a few files ahead of the reader.
    """
    files, found = find_episodes(Path(folder)), 0
    with ThreadPoolExecutor(_THREADS) as pool:
        for first in range(0, len(files), _FILES_AT_ONCE):
            chunk = files[first : first + _FILES_AT_ONCE]
            for file, content in zip(chunk, pool.map(_decompressed, chunk), strict=True):
                episode = _parsed(file, content)
                yield episode
                found += len(episode)
                if steps is not None and found >= steps:
                    return


def read_episode(file: Path) -> Episode:
    """Read one file; raise a `UserError` if it is damaged or is not an episode."""
    return _parsed(file, _decompressed(file))


def _decompressed(file: Path) -> dict[str, bytes]:
    """The members of a file by name. Threads do this part alone: NumPy parses headers with `ast`, which is not safe in
    several threads of Python 3.11."""
    limit = (available_memory() or sys.maxsize) // _FILES_AT_ONCE
    try:
        with open_regular(file.resolve(), limit) as opened, zipfile.ZipFile(opened) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > limit:
                raise ValueError(f"it has {size / 1e6:,.0f} MB, and there is memory for {limit / 1e6:,.0f} MB per file")
            return {name: archive.read(name) for name in archive.namelist()}
    except Exception as error:  # the decompressors are not ours, and the bytes may be anyone's
        raise _unreadable(file, error) from None


def _parsed(file: Path, content: dict[str, bytes]) -> Episode:
    parts = file.stem.split("_")
    if len(parts) != 3 or not (parts[2].isascii() and parts[2].isdigit()) or int(parts[2]) < 1:
        raise UserError(f"{file} is not an episode of ExORL: its name must be <word>_<index>_<length>.npz")
    try:
        arrays = {
            name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
            for name, data in content.items()
        }
    except Exception as error:  # the parser is not ours either
        raise _unreadable(file, error) from None
    return _episode(arrays, int(parts[2]), file)


def _unreadable(file: Path, error: Exception) -> UserError:
    reason = _first_line(error)
    return UserError(f"{file} cannot be read as an episode ({reason}): delete the file or download it again")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _episode(arrays: dict[str, npt.NDArray[Any]], length: int, file: Path) -> Episode:
    _check(arrays, length, file)
    steps = {name: values[1:] for name, values in arrays.items()}
    rewards = {name.removeprefix(REWARD): values[:, 0] for name, values in steps.items() if name.startswith(REWARD)}
    return Episode(
        observation=arrays["observation"],
        action=steps["action"],
        reward=steps["reward"][:, 0],
        task_rewards=rewards,
        terminated=bool(steps["discount"][-1, 0] == 0),
        skill=steps.get("skill", np.zeros((length, 0), np.float32)),
        physics=arrays.get("physics"),
    )


def _check(arrays: dict[str, npt.NDArray[Any]], length: int, file: Path) -> None:
    def need(condition: bool, reason: str) -> None:
        if not condition:
            raise UserError(f"{file} is not an episode of ExORL: {reason}")

    missing = [name for name in _REQUIRED if name not in arrays]
    need(not missing, f"it lacks {', '.join(missing)}")
    for name, values in arrays.items():
        rows = len(values) if values.ndim else 0
        need(rows == length + 1, f"it should have {length + 1} rows of {name}, not {rows}")
        need(np.issubdtype(values.dtype, np.floating), f"{name} is {values.dtype}, expected floating-point numbers")
        need(values.ndim == 2, f"{name} has shape {values.shape}, expected two dimensions")
        fits = bool((np.abs(values) <= LARGEST_VALUE).all())
        need(fits, f"{name} contains NaN, or values beyond {LARGEST_VALUE:g}")
    for name in ("observation", "action"):
        need(arrays[name].shape[1] > 0, f"{name} has shape {arrays[name].shape}: no numbers")
    for name in arrays:
        if name in ("reward", "discount") or name.startswith(REWARD):
            need(arrays[name].shape[1] == 1, f"{name} has shape {arrays[name].shape}, expected {(length + 1, 1)}")
