"""Convert frozen dataclasses to JSON and back. Unknown keys, missing keys and wrong types are errors."""

from __future__ import annotations

import dataclasses
import types
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from cic.core.errors import UserError, unknown

T = TypeVar("T")


def to_dict(config: Any) -> dict[str, Any]:
    return dataclasses.asdict(config)


def from_dict(cls: type[T], data: Any, where: str = "config", open_types: dict[str, Any] | None = None) -> T:
    """Build `cls` from the output of `to_dict`. `open_types` has the types of fields that the class leaves open."""
    if not isinstance(data, dict):
        raise UserError(f"{where} must be an object, not {type(data).__name__}")
    hints = _hints(cls) | (open_types or {})  # type: ignore[arg-type]
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name in data:
        if name not in fields:
            raise unknown(f"field of {where}", name, fields)
    missing = [
        name
        for name, field in fields.items()
        if name not in data and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UserError(f"{where} lacks {', '.join(missing)}")
    return cls(**{name: _value(hints[name], value, f"{where}.{name}") for name, value in data.items()})


def checked(cls: type, values: dict[str, Any]) -> dict[str, Any]:
    """Check values for some fields of `cls` as strictly as `from_dict` does."""
    hints = _hints(cls)
    return {name: _value(hints[name], value, name) for name, value in values.items()}


def with_fields(options: T, values: dict[str, Any]) -> T:
    """Return options with other values of some fields, as a caller in Python gives them.

    A string is accepted for a path, a single string for a list of strings, and an array for a list of numbers.
    """
    fields = [field.name for field in dataclasses.fields(options)]  # type: ignore[arg-type]
    hints, found = _hints(type(options)), {}  # type: ignore[arg-type]
    for name, value in values.items():
        if name not in fields:
            raise unknown("option", name, fields)
        if isinstance(value, str):
            kinds = (hints[name], *get_args(hints[name]))
            value = Path(value) if Path in kinds else (value,) if get_origin(hints[name]) is tuple else value
        found[name] = value.tolist() if hasattr(value, "tolist") else value
    return dataclasses.replace(options, **checked(type(options), found))  # type: ignore[type-var]


@lru_cache(maxsize=256)
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _value(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else from_dict(hint, value, where)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (hint,) = [a for a in arguments if a is not type(None)]
        return _value(hint, value, where)
    if origin is Literal:
        if value not in arguments:
            raise unknown(where, str(value), [str(a) for a in arguments])
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where} must be a list, not {value!r}")
        return tuple(_value(arguments[0], item, where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 1023:
        return float(value)
    if isinstance(hint, type) and (not isinstance(value, hint) or (hint is int and isinstance(value, bool))):
        raise UserError(f"{where} must be {hint.__name__}, not {value!r}")
    return value


def require(condition: bool, message: str) -> None:
    """Raise a `UserError` unless `condition` holds; for `__post_init__`."""
    if not condition:
        raise UserError(message)
