"""A run that trains in a local scratch folder while its files are kept behind a URL.

Files are uploaded in an order that keeps the remote copy usable: the manifest of a checkpoint after its other files,
`config.json` after everything from which the run starts, `result.json` last. Incomplete checkpoints are not downloaded.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cic.runs.liveness import is_dead
from cic.sweep.store import Store, is_regular

_FOLDERS = ("checkpoints", "milestones", "inherited", "library")  # each checkpoint or folder has a manifest
_LOCK = ".worker.json"
_LOCK_SECONDS = 60.0
_RENEW_SECONDS = 15.0
_UPLOAD_SECONDS = 2.0


class RemoteRun:
    """The copy of a run folder in a store."""

    def __init__(self, store: Store, folder: str, local: Path) -> None:
        self.store, self.folder, self.local = store, folder, local
        self._sent: dict[Path, tuple[int, int]] = {}

    # ---- the lock ----------------------------------------------------------------------------------------------

    def lock(self, driver: str) -> bool:
        """Reserve the run for this worker. Return False while a worker of another driver is alive.

        A lock expires a minute after its last renewal. Ray retries a task only after the worker before it was lost, so
        the lock of the same driver is taken over at once.
        """
        if self.store.create(self._lock_name, _heartbeat(driver)):
            return True
        held = self.store.read_object(self._lock_name) or {}
        if held.get("driver") != driver and not _has_expired(held):
            return False
        self._renew(driver)
        return True

    def unlock(self) -> None:
        self.store.remove(self._lock_name)

    @property
    def _lock_name(self) -> str:
        return f"{self.folder}/{_LOCK}"

    def _renew(self, driver: str) -> None:
        self.store.write(self._lock_name, _heartbeat(driver))

    # ---- download ----------------------------------------------------------------------------------------------

    def download(self) -> None:
        """Download all complete parts of the run, if there is a run."""
        if self.store.read_object(f"{self.folder}/config.json") is None:
            return
        root = self.store.full(self.folder)
        found = self.store.fs.find(root, detail=True)
        names = {path[len(root) + 1 :] for path, info in found.items() if is_regular(info)}
        for name in sorted(names):
            parent, _, file = name.rpartition("/")
            complete = name.partition("/")[0] not in _FOLDERS or f"{parent}/manifest.json" in names
            if complete and not file.startswith("."):
                path = self.local / name
                path.parent.mkdir(parents=True, exist_ok=True)
                self.store.fs.get_file(f"{root}/{name}", str(path))
                self._sent[path] = _stamp(path)

    # ---- upload ------------------------------------------------------------------------------------------------

    def upload(self, final: bool = False) -> None:
        """Upload new and changed files: all of them after a checkpoint and at the end, otherwise only the status."""
        manifests = [path for path in self._files() if path.name == "manifest.json"]
        if not final and all(path in self._sent for path in manifests):
            self._put(self.local / "status.json")
            return
        removed: set[Path] = set()
        for path in sorted(self._files(), key=_upload_order):
            if path.parent in removed or (path.name == "result.json" and not final):
                continue
            try:
                self._put(path)
            except FileNotFoundError:  # a checkpoint that the run has replaced with a newer one
                removed.add(path.parent)
        self._remove_old(manifests)

    def _files(self) -> list[Path]:
        """Return the files of the run without hidden ones, which are temporary."""
        found = []
        for path, folders, files in os.walk(self.local):
            folders[:] = [name for name in folders if not name.startswith(".")]
            found += [Path(path, name) for name in files if not name.startswith(".")]
        return found

    def _put(self, path: Path) -> None:
        if not path.exists() and path.parent == self.local:
            return
        stamp = _stamp(path)
        if self._sent.get(path) == stamp:
            return
        name = f"{self.folder}/{path.relative_to(self.local).as_posix()}"
        if path.parent == self.local:
            self.store.write(name, path.read_bytes())  # atomically: it replaces an older one
        else:
            self.store.make_parent(self.store.full(name))
            self.store.fs.put_file(str(path), self.store.full(name))
        self._sent[path] = stamp

    def _remove_old(self, manifests: list[Path]) -> None:
        kept = {path.parent.name for path in manifests if path.parent.parent.name == "checkpoints"}
        for name in self.store.names(f"{self.folder}/checkpoints"):
            if name.isdigit() and name not in kept and name < max(kept, default=""):
                self.store.fs.rm(self.store.full(f"{self.folder}/checkpoints/{name}"), recursive=True)

    @contextlib.contextmanager
    def uploading(self, driver: str) -> Iterator[None]:
        """Upload from a thread and renew the lock while the run trains; upload everything at the end."""
        end = threading.Event()

        def watch() -> None:
            renewed = time.monotonic()
            while not end.wait(_UPLOAD_SECONDS):
                with contextlib.suppress(Exception):  # the store fails for a moment: the next upload tries again
                    if time.monotonic() - renewed > _RENEW_SECONDS:
                        self._renew(driver)
                        renewed = time.monotonic()
                    self.upload()

        thread = threading.Thread(target=watch, name="upload", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
            self.upload(final=True)


def _upload_order(path: Path) -> tuple[int, str]:
    ranks = {"manifest.json": 1, "config.json": 2, "result.json": 3}
    return ranks.get(path.name, 0), str(path)


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _heartbeat(driver: str) -> bytes:
    now = datetime.now(timezone.utc).isoformat()
    return json.dumps({"driver": driver, "host": platform.node(), "pid": os.getpid(), "updated": now}).encode()


def _has_expired(held: dict[str, Any]) -> bool:
    """Return whether a lock is old, dated in the future, unreadable, or of a process of this machine that has ended."""
    try:
        age = datetime.now(timezone.utc) - datetime.fromisoformat(str(held.get("updated")))
    except (ValueError, TypeError):
        return True
    return abs(age.total_seconds()) > _LOCK_SECONDS or is_dead(held)
