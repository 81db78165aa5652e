"""Errors that the user can fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LETTERS = 2_000


class UserError(ValueError):
    """Invalid input. The command line prints the message without a traceback and exits with 2.

    The message may quote an untrusted file, so control characters are replaced.

    Example:
        ```python
        try:
            cic.pretrain("wlaker")
        except cic.UserError as error:
            print(error)  # unknown environment "wlaker"; did you mean "walker" …
        ```
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(c if c.isprintable() or c == "\n" else "�" for c in message[:_LETTERS]))


class Interrupted(Exception):
    """The user stopped a run, and it was saved. The command line exits with 130."""


def unknown(kind: str, name: str, options: Iterable[str]) -> UserError:
    """`unknown task "wlak"; did you mean "walk"?`, or the list of options if none is similar."""
    options = sorted(options)
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f'did you mean "{near[0]}"?' if near else f"choose one of: {', '.join(options)}"
    return UserError(f'unknown {kind} "{name}"; {hint}')
