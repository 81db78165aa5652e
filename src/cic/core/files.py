"""Opening files that somebody else may have put there."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, limit: int) -> BinaryIO:
    """Open for reading, but only a regular file of at most `limit` bytes.

    A FIFO would make the reader wait for ever, a device or a sparse file would never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # or opening a FIFO waits for its writer
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
    with open_regular(path, limit) as file:
        return file.read()
