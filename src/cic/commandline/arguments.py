"""A command whose settings are one dataclass: its help, or its values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar, get_type_hints

from cic.commandline import help
from cic.commandline.commands import COMMANDS
from cic.commandline.flags import flags_of, parse_into

T = TypeVar("T")


def arguments(cls: type[T], args: list[str], command: str, positional: Sequence[str] = ()) -> T | None:
    """The command's settings from its words; None if they asked for help, which is then printed."""
    which = help.wanted(args)
    if which is None:
        return parse_into(cls, args, command, positional)
    hints = get_type_hints(cls)
    parts = [hint for hint in hints.values() if dataclasses.is_dataclass(hint)]
    flags = [*flags_of(cls, positional=positional), *(flag for part in parts for flag in flags_of(part))]  # type: ignore[arg-type]
    about = COMMANDS[command].about
    print(help.page(command, f"{about[0].upper()}{about[1:]}.", [help.Group("settings", flags)], which))
    return None
