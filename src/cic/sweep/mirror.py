"""A run that trains in a folder of its node, and its copy in a store that is no folder.

What goes up is complete at every moment: a checkpoint's manifest goes last, and the logs go before it, since a resumed
run cuts them to the length that its checkpoint names but cannot lengthen them. `result.json` is the last of all.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from cic.sweep.storage import UrlStorage

_FOLDERS = ("checkpoints", "milestones")
_WEIGHTS = ("manifest.json", "agent.safetensors")
_WHOLE = ("inherited", "library")  # folders that are written once
_PATIENCE = (1.0, 5.0, 30.0)  # seconds between tries of the last push
_SECONDS = 2.0  # between looks for a new checkpoint


class Mirror:
    """One run: `pull` before it trains, `push` while it does and when it has stopped."""

    def __init__(self, storage: UrlStorage, folder: str, local: Path) -> None:
        self.storage, self.folder, self.local = storage, folder, local
        self._pushed: set[Path] = set()
        self._contents: dict[Path, bytes] = {}

    # ---- down --------------------------------------------------------------------------------------------------

    def pull(self) -> None:
        """Everything that the run needs to go on; nothing of what is half there."""
        if not self.storage.exists(f"{self.folder}/config.json"):
            return
        for name in self._files(""):
            if not name.startswith(".lease"):
                self._get(name)
        for folder in self._complete(_FOLDERS):
            for name in self._files(folder):
                self._get(f"{folder}/{name}")
            self._pushed.add(self.local / folder)
        for folder in _WHOLE:
            self._get_whole(folder)
        for name in self._files("tensorboard"):
            self._get(f"tensorboard/{name}")

    def pull_weights(self) -> None:
        """What a finetuning needs of its pre-training; not the replay, which is most of it."""
        self._get("config.json")
        if self.storage.exists(f"{self.folder}/result.json"):
            self._get("result.json")
        self._get_whole("library")
        for folder in self._complete(_FOLDERS):
            for name in _WEIGHTS:
                self._get(f"{folder}/{name}")

    def _get_whole(self, folder: str) -> None:
        names = self._files(folder)
        if "manifest.json" in names:
            for name in names:
                self._get(f"{folder}/{name}")
            self._pushed.add(self.local / folder)

    def _files(self, folder: str) -> list[str]:
        path = f"{self.folder}/{folder}".rstrip("/")
        full = self.storage.full(path)
        if not self.storage.fs.exists(full):
            return []
        found = self.storage.fs.ls(full, detail=True)
        return [item["name"].rpartition("/")[2] for item in found if item["type"] == "file"]

    def _complete(self, folders: tuple[str, ...]) -> list[str]:
        steps = [
            f"{folder}/{name}"
            for folder in folders
            for name in self.storage.names(f"{self.folder}/{folder}")
            if name.isdigit()
        ]
        return [step for step in steps if self.storage.exists(f"{self.folder}/{step}/manifest.json")]

    def _get(self, name: str) -> None:
        path = self.local / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.storage.fs.get_file(self.storage.full(f"{self.folder}/{name}"), str(path))

    # ---- up ----------------------------------------------------------------------------------------------------

    def push(self, final: bool = False) -> None:
        """What is new. A checkpoint that is replaced by newer ones meanwhile is left out, here and there."""
        complete = [path for folder in _FOLDERS for path in _steps(self.local / folder)]
        complete += [self.local / name for name in _WHOLE if (self.local / name / "manifest.json").exists()]
        fresh = [path for path in complete if path not in self._pushed]
        if not fresh and not final:
            self._put_file(self.local / "status.json")
            return
        for path in sorted((self.local / "tensorboard").glob("*")):
            self._put_file(path)
        for path in sorted(self.local.glob("*")):
            if path.is_file() and path.name not in ("result.json", "config.json"):
                self._put_file(path)
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(fresh, key=lambda path: path.name != "inherited"):
                self._put_folder(path)
        self._put_file(self.local / "config.json")  # after `inherited`: it makes the folder a run
        self._drop_old(complete)
        if final:
            self._put_file(self.local / "result.json")

    def _put_folder(self, path: Path) -> None:
        for file in sorted(path.iterdir(), key=lambda file: file.name == "manifest.json"):
            full = self.storage.full(f"{self.folder}/{file.relative_to(self.local)}")
            self.storage.make_parent(full)
            self.storage.fs.put_file(str(file), full)
        self._pushed.add(path)

    def _put_file(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            content = path.read_bytes()
            if content != self._contents.get(path):
                self.storage.write(f"{self.folder}/{path.relative_to(self.local)}", content)
                self._contents[path] = content

    def _drop_old(self, kept: list[Path]) -> None:
        names = {path.name for path in kept if path.parent.name == "checkpoints"}
        newest = max(names, default="")
        for name in self.storage.names(f"{self.folder}/checkpoints"):
            if name.isdigit() and name not in names and name < newest:
                self.storage.fs.rm(self.storage.full(f"{self.folder}/checkpoints/{name}"), recursive=True)

    def _push_at_last(self) -> None:
        """Hours of work are worth a few tries."""
        for seconds in _PATIENCE:
            try:
                self.push(final=True)
                return
            except Exception:
                time.sleep(seconds)
        self.push(final=True)

    @contextlib.contextmanager
    def kept_up(self) -> Iterator[None]:
        """While entered, push from a thread; at the end, everything."""
        end = threading.Event()

        def watch() -> None:
            while not end.wait(_SECONDS):
                with contextlib.suppress(Exception):  # the store stumbles: the next look or the final push tries again
                    self.push()

        thread = threading.Thread(target=watch, name="mirror", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
            self._push_at_last()


def _steps(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.name.isdigit())
