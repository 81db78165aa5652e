"""What `--help` prints: flags in groups, the required ones first; `--help-all` adds the rare ones."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cic.commandline.flags import REQUIRED, Flag

_INDENT = 26


@dataclass(frozen=True)
class Group:
    """Flags that belong together; `rare` are the names of those that only `--help-all` shows."""

    title: str
    flags: Sequence[Flag]
    rare: frozenset[str] = frozenset()


def wanted(args: Sequence[str]) -> str | None:
    """Which help the words ask for, if any."""
    for flag in ("--help-all", "--help", "-h"):
        if flag in args:
            return "all" if flag == "--help-all" else "short"
    return None


def page(command: str, about: str, groups: Sequence[Group], which: str, notes: str = "") -> str:
    """The help of one command, as wide as the terminal and at most 100 columns."""
    width = min(shutil.get_terminal_size().columns, 100)
    shown = [(group.title, _shown(group, which)) for group in groups]
    lines = [_usage(command, groups), "", *textwrap.wrap(about, width)]
    for title, flags in shown:
        if flags:
            lines += ["", f"{title}:", *(line for flag in flags for line in _entry(flag, width))]
    hidden = sum(len(group.flags) for group in groups) - sum(len(flags) for _, flags in shown)
    if notes:
        lines += ["", *textwrap.wrap(notes, width)]
    if hidden:
        lines += ["", f"{hidden} rarer settings: cic {command} --help-all"]
    return "\n".join(lines)


def _usage(command: str, groups: Sequence[Group]) -> str:
    flags = [flag for group in groups for flag in group.flags]
    places = [flag.spelling if flag.default == REQUIRED else f"[{flag.spelling}]" for flag in flags if flag.positional]
    needed = [f"{flag.spelling} {flag.metavar}" for flag in flags if not flag.positional and flag.default == REQUIRED]
    return " ".join([f"usage: cic {command}", *places, *needed, "[settings]"])


def _shown(group: Group, which: str) -> list[Flag]:
    flags = [flag for flag in group.flags if which == "all" or flag.name not in group.rare]
    return sorted(flags, key=lambda flag: (not flag.positional, flag.default != REQUIRED))


def _entry(flag: Flag, width: int) -> list[str]:
    head = f"  {flag.spelling}" if flag.positional else f"  {flag.spelling} {flag.metavar}".rstrip()
    body = textwrap.wrap(f"{flag.help} {_default(flag)}".strip(), width - _INDENT)
    if len(head) > _INDENT - 2:
        return [head, *(" " * _INDENT + line for line in body)]
    return [f"{head:<{_INDENT}}{body[0] if body else ''}", *(" " * _INDENT + line for line in body[1:])]


def _default(flag: Flag) -> str:
    if flag.default == REQUIRED:
        return "" if flag.positional else "(required)"
    if flag.default is None or flag.default is False or flag.default in ("", (), []):
        return ""
    if flag.kind == "bool":
        return f"(on; off by --no-{flag.spelling[2:]})"
    return f"(default: {_text(flag.default)})"


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    if isinstance(value, int):
        return f"{value:_}".replace("_", ",") if abs(value) >= 10_000 else str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
