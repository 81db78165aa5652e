"""Exclusive locks on folders. The operating system frees a lock when its process ends."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from cic.core.errors import UserError
from cic.runs.names import LOCK


def lock_folder(folder: Path, *, wait: bool = False) -> FileLock:
    """Lock a folder against other processes; release the returned lock, or use it in a `with` statement.

    Args:
        wait: Wait for the process that holds the lock, instead of raising a `UserError`.
    """
    lock = FileLock(folder / LOCK, mode=0o666, thread_local=False)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise UserError(f"another process is writing to {folder}: wait for it or stop it first") from None
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror or error}") from None
    return lock
