"""Open files that may come from an untrusted source."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

# Opening a FIFO would wait for its writer without O_NONBLOCK. Windows has no such flag and needs O_BINARY instead.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path, limit: int) -> BinaryIO:
    """Open a file for reading, but only a regular file of at most `limit` bytes.

    A FIFO would block the reader for ever; a device or a sparse file would never end.
    """
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
