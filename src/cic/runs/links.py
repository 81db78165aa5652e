"""Run folders hold files and folders: what is written there must not reach any other file of the user's."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from cic.core.errors import UserError
from cic.runs.bundled import refuse_shipped

FILES = ("config.json", "status.json", "result.json", "trials.json", "metrics.jsonl", "timing.jsonl", ".lock")
FOLDERS = ("checkpoints", "milestones", "inherited", "tensorboard", "wandb", "pictures", "measured")


def refuse_links(folder: Path) -> None:
    """Before anything is written to a run folder, which may come from anywhere."""
    refuse_shipped(folder)
    for path in _own(folder):
        kind = path.lstat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            what = "a link" if stat.S_ISLNK(kind) else "no regular file"
            raise UserError(f"{path} is {what}: cic writes to a run folder only if it holds nothing but files")


def _own(folder: Path) -> Iterator[Path]:
    """What is a run's in a folder that may be the user's own: `--out .` is allowed."""
    for name in (*FILES, *(f".{name}.part" for name in FILES), *FOLDERS):
        if os.path.lexists(folder / name):
            yield folder / name
    for name in FOLDERS:
        for path, below, files in os.walk(folder / name):
            yield from (Path(path) / found for found in (*below, *files))
