"""The user's mistakes, said in one sentence that names the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LETTERS = 2_000


class UserError(ValueError):
    """A mistake that the user can mend: the command line prints it without a traceback and exits with 2.

    What it quotes may come from a stranger's file: no control character of it reaches a terminal.
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(c if c.isprintable() or c == "\n" else "�" for c in message[:_LETTERS]))


class Interrupted(Exception):
    """The user stopped a run; it is saved. The command line exits with 130."""


def unknown(kind: str, name: str, options: Iterable[str]) -> UserError:
    """`unknown task "wlak"; did you mean "walk"?`, or the whole list when nothing is near."""
    options = sorted(options)
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f'did you mean "{near[0]}"?' if near else f"choose one of: {', '.join(options)}"
    return UserError(f'unknown {kind} "{name}"; {hint}')
