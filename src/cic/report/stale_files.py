"""Removal of figures and tables that an earlier report wrote and this one did not.

`made.json` lists each written file with its checksum. A file is removed only if it is listed and unchanged, so files
that a user added or edited stay.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from cic.runs.untrusted import read_regular

NAME = "made.json"
_REPORT_FILE = re.compile(r"(figures|tables)/[a-z0-9_]+\.(png|pdf|csv|md|tex)")
_MAX_BYTES = 200_000_000


def remove(out: Path, written: Iterable[Path]) -> None:
    """Remove files of an earlier report that are not in `written`, and list the written files."""
    current = {path.relative_to(out).as_posix() for path in written}
    for name, checksum in _listed(out).items():
        path = out / name
        linked = path.is_symlink() or path.parent.is_symlink()
        if name not in current and checksum and not linked and _checksum(path) == checksum:
            path.unlink()
    draft = out / f"{NAME}.part"
    draft.write_text(json.dumps({name: _checksum(out / name) for name in sorted(current)}, indent=1) + "\n", "utf-8")
    os.replace(draft, out / NAME)


def _listed(out: Path) -> dict[str, str]:
    """Return the list of the earlier report, restricted to names that a report can have."""
    try:
        listing = json.loads(read_regular(out / NAME, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    items = listing.items() if isinstance(listing, dict) else ()
    return {name: checksum for name, checksum in items if _REPORT_FILE.fullmatch(name) and isinstance(checksum, str)}


def _checksum(path: Path) -> str:
    try:
        return hashlib.sha256(read_regular(path, _MAX_BYTES)).hexdigest()
    except OSError:
        return ""
