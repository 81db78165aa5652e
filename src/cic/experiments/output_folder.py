"""Where experiments go: the runs, which they share, and a folder of results for each.

reproduce.json    the scale and the version of cic: runs of others are not mixed with these
runs/             the run folders of all experiments, as a sweep keeps them
NAME/             setup.json (what was asked), NAME.png, NAME.pdf, data.csv, tables, summary.json, page.html
index.html        all of them on one page
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cic import __version__
from cic.core.config import from_dict, to_dict
from cic.core.errors import UserError
from cic.experiments.base import Planned, Setup
from cic.runs.storage import write_json
from cic.runs.untrusted_json import plain, read_object
from cic.sweep.plan import Entry

MARK = "reproduce.json"
LOCK = ".lock"
FORMAT = 1


class Folder:
    """The folder `--out`."""

    def __init__(self, path: Path) -> None:
        self.path, self.runs = path, path / "runs"
        foreign = path.exists() and (not path.is_dir() or any(map(_foreign, path.iterdir())))
        self.made = self._read()  # after looking: a command that begins meanwhile writes the mark before anything else
        if self.made is None and foreign:
            raise UserError(f"{path} holds something else than experiments: give --out a new folder")

    @property
    def scale(self) -> str | None:
        return None if self.made is None else str(self.made.get("scale"))

    def _read(self) -> dict[str, Any] | None:
        if not (self.path / MARK).exists():
            return None
        found = read_object(self.path / MARK)
        if isinstance(found, str) or found.get("format") != FORMAT:
            raise UserError(f"{self.path / MARK} is damaged or of another version of cic: give another --out")
        return found

    @contextmanager
    def held(self) -> Iterator[None]:
        """Two commands may share a folder (a domain each, say): what both write, they write one after the other."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise UserError(f"cannot write to {self.path}: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def prepare(self, scale: str) -> None:
        """Before anything is run: only runs of this version and scale belong here."""
        with self.held():
            self.made = self._read()  # another command may have begun meanwhile
            self._prepare(scale)

    def _prepare(self, scale: str) -> None:
        if self.made is not None:
            version, other = plain(self.made.get("version")), plain(self.made.get("scale"))
            if (version, other) != (__version__, scale):
                raise UserError(
                    f"{self.path} was made by cic {version} at scale {other}, this is cic {__version__} at scale "
                    f"{scale}: give another --out, or --draw to draw what is there"
                )
            return
        self.made = {"format": FORMAT, "version": __version__, "scale": scale}
        write_json(self.path / MARK, self.made)  # first, so that nobody takes a folder of runs for something else
        self.runs.mkdir(exist_ok=True)

    def of(self, name: str) -> Path:
        return self.path / name

    def remember(self, name: str, setup: Setup, runs: Sequence[Planned]) -> None:
        """What was asked of an experiment and the runs that it meant: a later version may name them otherwise."""
        listed = [{"variant": run.variant, **to_dict(run.entry)} for run in runs]
        with self.held():
            self.of(name).mkdir(exist_ok=True)
            write_json(self.of(name) / "setup.json", setup.to_dict() | {"runs": listed})

    def recall(self, name: str) -> tuple[Setup, list[Planned]] | None:
        """What `remember` wrote; None if nothing was asked here."""
        path = self.of(name) / "setup.json"
        if not path.exists():
            return None
        found = read_object(path)
        try:
            if isinstance(found, str):
                raise ValueError(found)
            runs = [_planned(run) for run in found.pop("runs")]
            return from_dict(Setup, found, str(path)), runs
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UserError(f"{path} is damaged: run the experiment again") from None


def _foreign(path: Path) -> bool:
    """Not what a command that begins in this moment makes first."""
    return path.name not in (LOCK, f".{MARK}.part")


def _planned(run: Any) -> Planned:
    variant, entry = str(run.pop("variant")), from_dict(Entry, run, "a run")
    if Path(entry.name).name != entry.name:
        raise ValueError("not the name of a folder")
    return Planned(variant, entry)
