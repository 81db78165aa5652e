"""Dataclasses as flags: every field becomes one, its docstring the help, and words become its values.

A flag is plain data, so that a table of them can be kept in a file (`cic.commandline.settings_table`).
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import re
import textwrap
import types
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from cic.core.errors import UserError, unknown

T = TypeVar("T")
REQUIRED = "(required)"
"""Stands for a default where there is none; unlike dataclasses.MISSING it can be written to a file."""
_KINDS = {int: "int", float: "float", str: "text", Path: "path", bool: "bool"}


@dataclass(frozen=True)
class Flag:
    """One setting of a command: `--num-envs INT`."""

    name: str
    kind: str
    default: Any = REQUIRED
    help: str = ""
    choices: tuple[str, ...] = ()
    many: bool = False
    optional: bool = False
    positional: bool = False

    @property
    def spelling(self) -> str:
        return self.name.upper() if self.positional else "--" + self.name.replace("_", "-")

    @property
    def metavar(self) -> str:
        value = "|".join(self.choices) if self.choices else self.kind.upper()
        return "" if self.kind == "bool" else f"{value} …" if self.many else value


# ---- from dataclasses ------------------------------------------------------------------------------------------


def flags_of(cls: type, values: Any = None, positional: Sequence[str] = ()) -> list[Flag]:
    """A flag per field, its default that of the class or of the instance `values`. Parts are not looked into."""
    hints, texts = get_type_hints(cls), attribute_docs(cls)
    found = []
    for field in dataclasses.fields(cls):
        if _is_part(hints[field.name]):
            continue
        default = field.default if values is None else getattr(values, field.name)
        if default is MISSING and field.default_factory is not MISSING:
            default = field.default_factory()
        found.append(
            dataclasses.replace(
                _typed(field.name, hints[field.name]),
                default=REQUIRED if default is MISSING else default,
                help=texts.get(field.name, ""),
                positional=field.name in positional,
            )
        )
    return found


def _is_part(hint: Any) -> bool:
    return isinstance(hint, TypeVar) or dataclasses.is_dataclass(hint)


def _typed(name: str, hint: Any) -> Flag:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (hint,) = [kind for kind in inner if kind is not type(None)]
        return dataclasses.replace(_typed(name, hint), optional=True)
    if origin is tuple:
        return dataclasses.replace(_typed(name, inner[0]), many=True)
    if origin is Literal:
        return Flag(name, "text", choices=tuple(map(str, inner)))
    return Flag(name, _KINDS[hint])


def attribute_docs(cls: type) -> dict[str, str]:
    """Field → the string below it, base classes included."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                found[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


# ---- from words ------------------------------------------------------------------------------------------------


def parse(flags: Iterable[Flag], args: Sequence[str], command: str) -> dict[str, Any]:
    """What was given, by field; a flag that was not given is not there. Mistakes are said in one sentence."""
    flags = list(flags)
    named = {flag.spelling: flag for flag in flags if not flag.positional}
    given: dict[str, Any] = {}
    free: list[str] = []
    words = list(args)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            free.append(word)
            continue
        spelling, equals, text = word.partition("=")
        spelling = spelling.replace("_", "-")
        flag = named.get(spelling) or named.get(spelling.replace("--no-", "--", 1))
        if flag is None:
            raise _unknown_flag(spelling, named, command)
        if flag.kind == "bool":
            if equals:
                raise UserError(f"{spelling} takes no value; its opposite is --no-{spelling[2:]}")
            given[flag.name] = spelling == flag.spelling
        elif spelling != flag.spelling:
            raise _unknown_flag(spelling, named, command)
        else:
            given[flag.name] = _value(flag, [text] if equals else _take(flag, words))
    _place(free, [flag for flag in flags if flag.positional], given, command)
    for flag in flags:
        if flag.default == REQUIRED and flag.name not in given:
            raise UserError(f"`cic {command}` needs {flag.spelling}: {flag.help.rstrip('.')}")
    return given


def _unknown_flag(spelling: str, named: dict[str, Flag], command: str) -> UserError:
    near = difflib.get_close_matches(spelling, named, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"see `cic {command} --help-all`"
    return UserError(f"unknown flag {spelling}; {hint}")


def _take(flag: Flag, words: list[str]) -> list[str]:
    """The flag's words, from the front of `words`: one, or as many as can be meant."""
    if not words or words[0].startswith("--"):
        raise UserError(f"{flag.spelling} needs a value: {flag.metavar}")
    taken = [words.pop(0)]
    while flag.many and words and not words[0].startswith("--") and (flag.kind == "text" or is_number(words[0])):
        taken.append(words.pop(0))
    return taken


def _place(free: list[str], places: list[Flag], given: dict[str, Any], command: str) -> None:
    for flag in places:
        if free:
            taken, free = (free, []) if flag.many else (free[:1], free[1:])
            given[flag.name] = _value(flag, taken)
    if free and not places:
        raise UserError(f"`cic {command}` takes no folder or name, not {' '.join(free)}; settings are --name value")
    if free:
        raise UserError(f"`cic {command}` does not know what {' '.join(free)} means; settings are --name value")


def _value(flag: Flag, texts: list[str]) -> Any:
    if flag.optional and texts in (["none"], ["None"]):
        return None
    found = tuple(_one(flag, text) for text in texts)
    return found if flag.many else found[0]


def _one(flag: Flag, text: str) -> Any:
    if flag.choices and text not in flag.choices:
        raise unknown(f"value of {flag.spelling}", text, flag.choices)
    if flag.kind == "path":
        return Path(text)
    if flag.kind == "text":
        return text
    try:
        value = number(text)
    except ValueError:
        wanted = "numbers with spaces between them" if flag.many else "a number"
        raise UserError(f"{flag.spelling} must be {wanted}, not {text}") from None
    if flag.kind == "float":
        return float(value)
    if value != value or value in (float("inf"), float("-inf")) or value != int(value):
        raise UserError(f"{flag.spelling} must be a whole number, not {text}")
    return int(value)


def number(text: str) -> float:
    """`100000`, `100_000`, `100,000`, `1e5` and `100k` are the same; `M` is a million. `0,1` is no number."""
    scale = {"k": 1_000, "K": 1_000, "M": 1_000_000}.get(text[-1:], 1)
    digits = text[:-1] if scale > 1 else text
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", digits):
        digits = digits.replace(",", "")
    return int(digits) * scale if digits.lstrip("+-").replace("_", "").isdecimal() else float(digits) * scale


def is_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True


def parse_into(cls: type[T], args: Sequence[str], command: str, positional: Sequence[str] = ()) -> T:
    """An instance of a dataclass whose fields are the command's settings; its parts are dataclasses of more."""
    hints = get_type_hints(cls)
    parts = {field.name: hints[field.name] for field in dataclasses.fields(cls) if _is_part(hints[field.name])}  # type: ignore[arg-type]
    own = flags_of(cls, positional=positional)
    given = parse([*own, *(flag for part in parts.values() for flag in flags_of(part))], args, command)
    inner = {
        name: part(**{field.name: given.pop(field.name) for field in dataclasses.fields(part) if field.name in given})
        for name, part in parts.items()
    }
    return cls(**given, **inner)


def peek(args: Sequence[str], flag: str) -> str | None:
    """A flag's value before its flags are known: the objective and the scale decide which there are."""
    for index, arg in enumerate(args):
        if arg == flag and index + 1 < len(args):
            return args[index + 1]
        if arg.startswith(f"{flag}="):
            return arg.partition("=")[2]
    return None
