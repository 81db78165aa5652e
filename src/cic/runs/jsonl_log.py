"""A JSONL file that a run appends to. Every checkpoint contains a copy of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

from cic.core.errors import UserError
from cic.runs.names import partial
from cic.runs.storage import CHUNK, LOG_LIMIT, checksum, create, sync
from cic.runs.untrusted import open_regular


class JsonlLog:
    """A JSONL file that continues from the copy in a checkpoint.

    The continued file is written again from the copy instead of being truncated in place: the file on disk may be
    damaged, may be shared with a backup by a hard link, or may be a link to another file.

    Args:
        path: The file.
        start: The copy in the checkpoint from which the run resumes; None for a new run.
    """

    def __init__(self, path: Path, start: Path | None = None) -> None:
        self.path, self._digest = path, hashlib.sha256()
        if start is not None and not _starts_with(path, start):
            warnings.warn(
                f"{path} was lost or changed; it is restored from the checkpoint {start.parent}", stacklevel=2
            )
        with create(partial(path)) as file:
            if start is not None:
                with open_regular(start, LOG_LIMIT) as copy:
                    while chunk := copy.read(CHUNK):
                        file.write(chunk)
                        self._digest.update(chunk)
        os.replace(partial(path), path)
        self._file = open(path, "ab")  # noqa: SIM115  opened again: Windows cannot rename an open file

    def write(self, line: dict[str, Any]) -> None:
        content = json.dumps(line).encode() + b"\n"
        self._file.write(content)
        self._digest.update(content)
        self._file.flush()

    def copy_to(self, path: Path) -> None:
        """Copy the file into a checkpoint, unless another process has changed it."""
        sync(self._file)
        try:
            shutil.copyfile(self.path, path, follow_symlinks=False)
            same = checksum(path) == self._digest.hexdigest()
        except FileNotFoundError:
            same = False
        if not same:
            raise UserError(
                f"{self.path} was changed while the run was writing it: "
                "continue with `resume`, which restores it from the last checkpoint"
            )

    def close(self) -> None:
        self._file.close()


def _starts_with(path: Path, start: Path) -> bool:
    """Whether a log still contains what the checkpoint has of it."""
    try:
        with open_regular(path, LOG_LIMIT) as log, open_regular(start, LOG_LIMIT) as copy:
            while chunk := copy.read(CHUNK):
                if log.read(len(chunk)) != chunk:
                    return False
    except OSError:
        return False
    return True
