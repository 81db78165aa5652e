"""One injection: a run that was never disturbed, and a copy of it to disturb."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cic import api
from cic.runs import jsonl_log, storage

from .folders import contents, newest, stopped
from .processes import FINE, SECONDS, End, live

Rng = np.random.Generator


@dataclass(frozen=True)
class Scenario:
    """A run that was never disturbed, how to start it, and how many events it has."""

    name: str
    reference: Path
    start: Callable[[Path], Any]
    events: int
    resume: Callable[[Path], Any] | None = None
    """How to continue it, if not with `cic.resume`."""


@dataclass
class Case:
    """One injection: a folder of its own, and a run to disturb there."""

    scenario: Scenario
    home: Path
    rng: Rng
    here: bool = False
    """Whether the run is started with `--out .` in a folder of the user's, with hidden folders of their own."""

    seconds: float = SECONDS
    """How long a process may take."""
    _made: bool = False

    @property
    def path(self) -> Path:
        return self.home / "run"

    def go(self) -> Any:
        """Begin the run, or continue it."""
        path = self.path
        if self.here and self.path.exists():
            os.chdir(self.path)
            path = Path()
        if self.scenario.resume is not None:
            return self.scenario.resume(path)
        if (path / "config.json").exists():
            return api.resume(path, quiet=True)
        return self.scenario.start(path)

    def live(self, *faults: Callable[[], Any]) -> End:
        if self.here and not self._made:
            self._made = True
            for name in OWN_FILES:
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                (self.path / name).write_text("mine")

        def action() -> None:
            for fault in faults:
                fault()
            self.go()

        return live(action, self.home / "said", self.seconds)

    def stop(self) -> None:
        stopped(self.scenario.reference, self.path)

    def to_the_end(self, *, saved_between: bool = False) -> str:
        """Continue undisturbed; what differs in the end."""
        for _ in range(3):
            end = self.live()
            if end.code != FINE and "is finished already" not in end.said:
                return f"cannot go on: {end.code} {end.said[-300:]}"
            if (self.path / "result.json").exists():
                return self.difference(saved_between=saved_between)
        return "makes no progress"

    def difference(self, *, saved_between: bool = False) -> str:
        """With `saved_between` the last checkpoint but one may be another: a run that is stopped saves where it is."""
        got, expected = contents(self.path), contents(self.scenario.reference)
        if self._made and [got.pop(name, b"") for name in OWN_FILES] != [b"mine"] * len(OWN_FILES):
            return "files of the user's were changed"
        if saved_between:
            last = f"checkpoints/{newest(self.scenario.reference).name}/"
            got, expected = (
                {name: value for name, value in one.items() if name.startswith(last) or "checkpoints/" not in name}
                for one in (got, expected)
            )
        if got.keys() != expected.keys():
            return f"other files: {sorted(got.keys() ^ expected.keys())}"
        different = [name for name, value in expected.items() if got[name] != value]
        if different:
            return f"differs: {different}"
        state = json.loads((self.path / "status.json").read_text())["state"]
        return "" if state == "finished" else f"the status says {state}"


def sentence(end: End, *codes: int) -> str:
    """Whether a child ended with one of these codes, without a traceback and without control characters."""
    printable = all(letter.isprintable() or letter == "\n" for letter in end.said)
    if end.code in codes and "Traceback" not in end.said and printable:
        return ""
    return f"ended with {end.code}: {end.said[-600:]}"


OWN_FILES = (".library/x", ".2024/x", ".checkpoints/000000006/x", "notes/x")
"""Files of the user's in a folder in which a run is started with `--out .`."""
OPERATIONS: list[tuple[Any, str, int]] = [
    (os, "open", 40),
    (os, "fsync", 60),
    (os, "replace", 20),
    (os, "rename", 8),
    (os, "unlink", 40),
    (os, "mkdir", 12),
    (os, "close", 60),
    (Path, "rename", 6),
    (shutil, "rmtree", 12),
    (shutil, "copyfile", 8),
    (storage, "save_tensors", 12),
    (storage, "save_arrays", 16),
    (jsonl_log.JsonlLog, "write", 12),
]
