"""Where a sweep's results are: a folder that all nodes see, or an fsspec URL (s3://, gs://, …).

In a folder, runs train in place. For a URL they train in a folder of their node, and `mirror` carries what matters up
and down.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from cic.core.errors import UserError

SWEEP = "sweep"
"""The folder of plans and markers, beside those of the runs."""


class Storage(ABC):
    """Small files by name; whole or not there."""

    where: str

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """None if there is none."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """In place of what may be there."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> bool:
        """Only if there is none; of several who try at once, one hears True."""

    @abstractmethod
    def remove(self, name: str) -> None: ...

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """What is directly in a folder."""

    @abstractmethod
    def exists(self, name: str) -> bool: ...

    @abstractmethod
    def tail(self, name: str, size: int) -> bytes:
        """The last bytes of a file, if it is there."""

    def read_object(self, name: str) -> dict[str, Any]:
        """A JSON object; empty if there is none or it cannot be read."""
        with contextlib.suppress(ValueError):
            content = json.loads(self.read(name) or b"{}")
            return content if isinstance(content, dict) else {}
        return {}


class FolderStorage(Storage):
    """A folder of this machine, or of a file system that all nodes share."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.where = str(self.path)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, content: bytes) -> None:
        temporary = self._temporary(name, content)
        os.replace(temporary, self.path / name)

    def create(self, name: str, content: bytes) -> bool:
        temporary = self._temporary(name, content)
        try:
            os.link(temporary, self.path / name)  # unlike open(…, "x"), never seen half written
            return True
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            return _create_plainly(self.path / name, content)
        finally:
            temporary.unlink()

    def _temporary(self, name: str, content: bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        temporary.write_bytes(content)
        return temporary

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(self.path / folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def tail(self, name: str, size: int) -> bytes:
        try:
            with open(self.path / name, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - size))
                return file.read()
        except OSError:
            return b""


def _create_plainly(path: Path, content: bytes) -> bool:
    try:
        with open(path, "xb") as file:
            file.write(content)
        return True
    except FileExistsError:
        return False


class UrlStorage(Storage):
    """Any file system that fsspec knows."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError:
            raise UserError(f"{url} needs the extra `sweep`: pip install 'cic[sweep]'") from None
        self.where = url.rstrip("/")
        try:
            self.fs, root = fsspec.core.url_to_fs(self.where, use_listings_cache=False)
        except (ImportError, ValueError, OSError) as error:
            raise UserError(f"the storage {url} cannot be opened: {error}") from None
        self.root = root.rstrip("/")

    def full(self, name: str) -> str:
        return f"{self.root}/{name}"

    def read(self, name: str) -> bytes | None:
        try:
            return bytes(self.fs.cat_file(self.full(name)))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Object stores put atomically; elsewhere the rename makes it so."""
        path = self.full(name)
        self.make_parent(path)
        part = f"{path}.{secrets.token_hex(4)}.part"
        self.fs.pipe_file(part, content)
        self.fs.mv(part, path)

    def create(self, name: str, content: bytes) -> bool:
        path = self.full(name)
        self.make_parent(path)
        try:
            self.fs.pipe_file(path, content, mode="create")
            return True
        except FileExistsError:
            return False

    def make_parent(self, path: str) -> None:
        """Where folders are real; for an object store this does nothing."""
        self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(self.full(name))

    def names(self, folder: str) -> list[str]:
        try:
            return [found.rstrip("/").rpartition("/")[2] for found in self.fs.ls(self.full(folder), detail=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, name: str) -> bool:
        return bool(self.fs.exists(self.full(name)))

    def tail(self, name: str, size: int) -> bytes:
        content = self.read(name) or b""
        return content[-size:]


def open_storage(where: str | Path) -> Storage:
    """A path or a URL."""
    return UrlStorage(where) if isinstance(where, str) and "://" in where else FolderStorage(Path(where))
