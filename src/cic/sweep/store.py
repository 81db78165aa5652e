"""Where a sweep keeps its runs: a folder that all nodes see, or an fsspec URL such as s3://bucket/sweep."""

from __future__ import annotations

import contextlib
import json
import secrets
from pathlib import Path
from typing import Any

import fsspec

from cic.core.errors import UserError

SWEEP = "sweep"
"""The folder with plans and markers, beside the run folders."""
_LIMIT = 256 << 20  # bytes; a list of 10,000 runs takes 10 MB


class Store:
    """Small files by name. A name is a path relative to `where`."""

    def __init__(self, where: str | Path) -> None:
        is_url = isinstance(where, str) and "://" in where
        self.where = str(where).rstrip("/") if is_url else str(Path(where).absolute())
        self.folder = None if is_url else Path(self.where)
        """The folder in which the runs train; None for a URL."""
        try:
            self.fs, root = fsspec.core.url_to_fs(self.where, use_listings_cache=False)
        except (ImportError, ValueError, OSError) as error:
            raise UserError(f"the storage {where} cannot be opened: {error}") from None
        self.root = root.rstrip("/")

    def full(self, name: str) -> str:
        return f"{self.root}/{name}"

    def read(self, name: str, last: int | None = None) -> bytes | None:
        """Return the content (or its `last` bytes) of a regular file, None if there is none.

        Links are not followed, and a FIFO does not block.
        """
        path = self.full(name)
        try:
            found = self.fs.info(path)
            if not is_regular(found) or found["size"] > _LIMIT:
                return None
            return bytes(self.fs.cat_file(path, start=None if last is None else max(0, found["size"] - last)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_object(self, name: str) -> dict[str, Any] | None:
        """Return a JSON object, None if there is none or it is damaged."""
        try:
            content = json.loads(self.read(name) or b"")
        except (ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None

    def write(self, name: str, content: bytes) -> None:
        """Replace a file. The rename makes this atomic where a plain upload is not."""
        path = self.full(name)
        self.make_parent(path)
        part = f"{path}.{secrets.token_hex(4)}.part"
        self.fs.pipe_file(part, content)
        self.fs.mv(part, path)

    def create(self, name: str, content: bytes) -> bool:
        """Create a file if there is none. Of several callers at once, one gets True."""
        path = self.full(name)
        self.make_parent(path)
        try:
            self.fs.pipe_file(path, content, mode="create")
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(self.full(name))

    def names(self, folder: str) -> list[str]:
        """Return the names of the files and folders directly in a folder."""
        try:
            found = self.fs.ls(self.full(folder).rstrip("/"), detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [path.rstrip("/").rpartition("/")[2] for path in found]

    def make_parent(self, path: str) -> None:
        """Create the folder of a path; an object store needs none."""
        self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)


def is_regular(info: dict[str, Any]) -> bool:
    """Return whether fsspec describes a regular file, not a folder, link or FIFO."""
    return info["type"] == "file" and not info.get("islink")
