"""A report that is made again takes away what the last one left and this one did not make, and nothing else.

`made.json` in the report's folder lists each figure and table with its checksum. A file goes only if it is listed and
still as it was made; what a user put or changed there stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from cic.core.files import read_regular

NAME = "made.json"
_OURS = re.compile(r"(figures|tables)/[a-z0-9_]+\.(png|pdf|csv|md|tex)")
_BYTES = 200_000_000


def clear(out: Path, made: Iterable[Path]) -> None:
    """Remove what an earlier report made and list what this one did."""
    now = {path.relative_to(out).as_posix() for path in made}
    for name, digest in _listed(out).items():
        path = out / name
        if (
            name not in now
            and digest
            and not path.is_symlink()
            and not path.parent.is_symlink()
            and _digest(path) == digest
        ):
            path.unlink()
    listing = {name: _digest(out / name) for name in sorted(now)}
    draft = out / f"{NAME}.part"
    draft.write_text(json.dumps(listing, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, out / NAME)


def _listed(out: Path) -> dict[str, str]:
    """The earlier report's list; only names that a report can have made count."""
    try:
        listing = json.loads(read_regular(out / NAME, _BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(listing, dict):
        return {}
    return {name: digest for name, digest in listing.items() if _OURS.fullmatch(name) and isinstance(digest, str)}


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_regular(path, _BYTES)).hexdigest()
    except OSError:
        return ""
