"""The text of a `cic` command, for messages and records that the user can paste into a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any


def command_text(*words: str, imports: Any = (), **settings: Any) -> str:
    """Return `cic` with these words and settings as flags: `command_text("explore", "walker", at=500)`.

    A setting that is None is omitted; a sequence gives one word per element. `imports` are files and modules that the
    command must import first.
    """
    flags = []
    for name, value in settings.items():
        if value is not None:
            values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
            flags += [_flag(name), *map(str, values)]
    for file in imports:
        flags += [_flag("import"), file]
    return shlex.join(["cic", *words, *flags])


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
