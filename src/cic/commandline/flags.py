"""Flags from dataclasses: one flag per field, with the field's docstring as its help; and the values of flags.

A `Flag` is plain data, so that `settings_table` can store flags in a file.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
import types
from argparse import ArgumentTypeError
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from cic.core.errors import unknown

T = TypeVar("T")
REQUIRED = "(required)"
"""The default of a flag that has none. A string, because `dataclasses.MISSING` cannot be stored in a file."""
POSITIONAL = {"positional": True}
"""Metadata of a field that is given without a flag: `run: Path = field(metadata=POSITIONAL)`."""
_KINDS = {int: "int", float: "float", str: "text", Path: "path", bool: "bool"}


@dataclass(frozen=True)
class Flag:
    """One setting of a command, such as `--num-envs INT`."""

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
        return self.spelling if self.positional else "|".join(self.choices) or self.kind.upper()

    @property
    def nargs(self) -> str | None:
        return ("*" if self.many else "?") if self.positional else "+" if self.many else None

    @property
    def usage(self) -> str:
        if self.positional:
            name = f"{self.spelling} …" if self.many else self.spelling
            return name if self.required else f"[{name}]"
        return f"{self.spelling} {self.metavar}" if self.required else ""

    @property
    def required(self) -> bool:
        return bool(self.default == REQUIRED)

    @property
    def help_with_default(self) -> str:
        if self.required:
            return self.help if self.positional else f"{self.help} {REQUIRED}"
        if self.default is None or self.default is False or self.default in ("", (), []):
            return self.help
        default = "on" if self.kind == "bool" else value_text(self.default)
        return f"{self.help} (default: {default})".strip()


def value_text(value: Any) -> str:
    """Return a value as the user writes it."""
    if isinstance(value, list | tuple):
        return " ".join(map(value_text, value))
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---- dataclasses -----------------------------------------------------------------------------------------------


def flags_of(cls: type) -> list[Flag]:
    """Return a flag per field, including the fields of dataclasses in it."""
    hints, texts = get_type_hints(cls), attribute_docs(cls)
    found = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if dataclasses.is_dataclass(hint):
            found += flags_of(hint)  # type: ignore[arg-type]
        elif not (isinstance(hint, TypeVar) or _is_record_list(hint)):
            flag = _typed(field.name, hint)
            default = REQUIRED if default is MISSING else default
            positional = field.metadata.get("positional", False)
            found.append(
                dataclasses.replace(flag, default=default, help=texts.get(field.name, ""), positional=positional)
            )
    return found


def build(cls: type[T], given: Mapping[str, Any]) -> T:
    """Make an instance of a dataclass, and of the dataclasses in it, from the flags that were given."""
    hints = get_type_hints(cls)
    values = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if dataclasses.is_dataclass(hints[field.name]):
            values[field.name] = build(hints[field.name], given)
        elif field.name in given:
            values[field.name] = given[field.name]
    return cls(**values)


def _is_record_list(hint: Any) -> bool:
    """Whether a field holds dataclasses, which have no spelling as a flag."""
    return get_origin(hint) is tuple and dataclasses.is_dataclass(get_args(hint)[0])


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
    """Return the string below each field, including those of the base classes."""
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


# ---- values ----------------------------------------------------------------------------------------------------


def value_of(flag: Flag, text: str) -> Any:
    """Return the value of one word for a flag; raise an `ArgumentTypeError` if it is invalid."""
    text = text[1:] if text.startswith(" -") else text  # see CommandParser._prepared
    if flag.optional and text in ("none", "None"):
        return None
    if flag.choices and text not in flag.choices:
        raise ArgumentTypeError(str(unknown("value", text, flag.choices)))
    if flag.kind in ("text", "path"):
        return Path(text) if flag.kind == "path" else text
    if flag.name == "hidden" and "," in text:
        raise ArgumentTypeError(f"all hidden layers have the same width: give one number, not {text}")
    try:
        value = number(text)
        return float(value) if flag.kind == "float" else _whole(value)
    except (ValueError, OverflowError):
        kind = "a number" if flag.kind == "float" else "a whole number"
        wanted = "numbers with spaces between them" if flag.many else kind
        raise ArgumentTypeError(f"expected {wanted}, not {text}") from None


def number(text: str) -> float:
    """Read `100000`, `100_000`, `100,000`, `1e5` and `100k` as the same number; `M` is a million.

    A decimal comma (`0,1`) is refused.
    """
    scale = {"k": 1_000, "K": 1_000, "M": 1_000_000}.get(text[-1:], 1)
    digits = text[:-1] if scale > 1 else text
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", digits):
        digits = digits.replace(",", "")
    return int(digits) * scale if digits.lstrip("+-").replace("_", "").isdecimal() else float(digits) * scale


def _whole(value: float) -> int:
    if value != int(value):
        raise ValueError(value)
    return int(value)


def is_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True
