"""The user's own code, imported by the command line before everything else.

Objectives and environments register themselves when their module is imported. The run's record lists the imported
modules and files; opening a run never imports anything.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cic.core.errors import UserError

HINT = "(your own must be registered first: `import FILE`)"
_IMPORTED: list[str] = []


def import_first(names: list[str]) -> None:
    """Import modules by name, or files by path."""
    for name in names:
        try:
            recorded = _import(name)
        except UserError:
            raise
        except Exception as error:  # the user's code may raise anything
            raise UserError(f"cannot import {name}: {type(error).__name__}: {error}") from error
        if recorded not in _IMPORTED:
            _IMPORTED.append(recorded)


def imported() -> list[str]:
    """The module names and absolute paths that `import_first` imported, for the run's record."""
    return list(_IMPORTED)


def import_names(names: Any) -> list[str]:
    """The imports in the record of a run, which may be untrusted."""
    return [name for name in names if isinstance(name, str)] if isinstance(names, list | tuple) else []


@contextmanager
def naming_imports(names: Any, run: object) -> Iterator[None]:
    """Add the imports in the record of a run to errors, if one of them is missing in this process."""
    try:
        yield
    except UserError as error:
        needed = " and ".join(f"`import {name}`" for name in import_names(names))
        if set(import_names(names)) <= set(imported()) or needed in str(error):
            raise
        raise UserError(f"{error}; {run} was made with {needed}") from None


def _import(name: str) -> str:
    path = Path(name)
    if path.suffix != ".py" and not path.exists():
        if (here := os.getcwd()) not in sys.path:
            sys.path.insert(0, here)  # where `python script.py` would find it
        importlib.import_module(name)
        return name
    if not path.is_file():
        raise UserError(f"cannot import {name}: there is no such file")
    if path.suffix != ".py":
        raise UserError(f"cannot import {name}: it is not a Python file, whose name ends in .py")
    path = path.resolve()
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return str(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if known is None:
            del sys.modules[path.stem]
        else:
            sys.modules[path.stem] = known
        raise
    return str(path)
