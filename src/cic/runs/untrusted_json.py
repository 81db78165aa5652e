"""Read JSON from an untrusted source: any value in any place gives something that can be used or shown."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from cic.core.files import read_regular

_BYTES = 64_000_000
_LETTERS = 500
_LEVELS = 20
_LARGEST = 1e100


def read_object(path: Path) -> dict[str, Any] | str:
    """Read a JSON object, or return what is wrong with the file."""
    try:
        document = json.loads(read_regular(path, _BYTES))
    except OSError as error:
        return f"{path.name} cannot be read ({error.strerror})"
    except (ValueError, RecursionError):
        return f"{path.name} is not valid JSON"
    if not isinstance(document, dict):
        return f"{path.name} is not a JSON object"
    return document if _is_shallow(document) else f"{path.name} is nested too deeply"


def _is_shallow(document: Any) -> bool:
    """Whether it has few enough levels for recursive functions."""
    level = [document]
    for _ in range(_LEVELS):
        inside = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [item for items in inside for item in items]
    return not level


def plain(value: Any) -> str:
    """Text that a terminal or a page can show: of limited length, without control characters."""
    return "".join(letter if letter.isprintable() else "�" for letter in str(value)[:_LETTERS])


def number(value: Any) -> float:
    """The value as a float; NaN if it is not a number, or too large for sums and axes."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST
    return float(value) if known else math.nan


def integer(value: Any) -> int:
    """The value as an integer; 0 if it is not a number."""
    found = number(value)
    return int(found) if math.isfinite(found) else 0
