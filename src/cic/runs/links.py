"""Refuse to write to run folders that contain links: a link could lead to any other file of the user's."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from cic.core.errors import UserError
from cic.runs.bundled import refuse_bundled
from cic.runs.lock import NAME as LOCK
from cic.runs.storage import partial

FILES = ("config.json", "status.json", "result.json", "trials.json", "metrics.jsonl", "timing.jsonl", LOCK)
FOLDERS = ("checkpoints", "milestones", "library", "inherited", "tensorboard", "wandb", "pictures", "measured")
"""The names that a run uses. Everything else in its folder belongs to the user: `--out .` is allowed."""


def refuse_links(folder: Path) -> None:
    """Raise a `UserError` if one of a run's files is not a regular file. Call it before writing to a run folder."""
    refuse_bundled(folder)
    for path in _own_paths(folder):
        kind = path.lstat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            what = "a link" if stat.S_ISLNK(kind) else "not a regular file"
            raise UserError(f"{path} is {what}: cic writes to run folders that contain only files and folders")


def _own_paths(folder: Path) -> Iterator[Path]:
    names = [folder / name for name in (*FILES, *FOLDERS)]
    yield from (path for name in names for path in (name, partial(name)) if os.path.lexists(path))
    for name in FOLDERS:
        for path, below, files in os.walk(folder / name):
            yield from (Path(path) / found for found in (*below, *files))
