"""Lines of metrics: a file that a run appends to, and that every checkpoint has a copy of."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

from cic.core.errors import UserError
from cic.core.files import open_regular
from cic.runs.storage import CHUNK, LOG_LIMIT, checksum, create, sync


class LineLog:
    """A JSONL file that continues from the copy in a checkpoint.

    What it continues is written anew and not cut off in place: the file on disk may have been damaged, be shared with a
    backup by a hard link, or lead elsewhere.
    """

    def __init__(self, path: Path, start: Path | None = None) -> None:
        self.path, self._digest = path, hashlib.sha256()
        temporary = path.with_name(f".{path.name}.part")
        if start is not None and not _begins_as(path, start):
            warnings.warn(
                f"{path} was lost or changed; it is restored from the checkpoint {start.parent}", stacklevel=2
            )
        self._file = create(temporary)
        if start is not None:
            with open_regular(start, LOG_LIMIT) as file:
                while chunk := file.read(CHUNK):
                    self._append(chunk)
        self._file.flush()
        os.replace(temporary, path)

    def write(self, line: dict[str, Any]) -> None:
        self._append(json.dumps(line).encode() + b"\n")
        self._file.flush()

    def _append(self, content: bytes) -> None:
        self._file.write(content)
        self._digest.update(content)

    def copy_to(self, path: Path) -> None:
        """For a checkpoint: all that was written, if nobody else has changed it meanwhile."""
        sync(self._file)
        try:
            shutil.copyfile(self.path, path, follow_symlinks=False)
            same = checksum(path) == self._digest.hexdigest()
        except FileNotFoundError:
            same = False
        if not same:
            raise UserError(
                f"{self.path} was changed while the run was writing it: "
                "continue with --resume, which restores it from the last checkpoint"
            )

    def close(self) -> None:
        self._file.close()


def _begins_as(path: Path, start: Path) -> bool:
    """Whether a log still holds what the checkpoint has of it."""
    try:
        with open_regular(path, LOG_LIMIT) as log, open_regular(start, LOG_LIMIT) as copy:
            while chunk := copy.read(CHUNK):
                if log.read(len(chunk)) != chunk:
                    return False
    except OSError:
        return False
    return True
