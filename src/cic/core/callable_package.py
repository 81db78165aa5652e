"""Packages that can be called: `cic.report(…)` calls the function `report` of the package `cic.report`.

Python binds an imported subpackage to its name in the parent package, so `cic` cannot have a function of that name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """A package whose call is passed to one of its functions."""

    _function: tuple[str, str]

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function; `inspect.signature` reads it."""
        module, name = self._function
        function: Callable[..., Any] = getattr(import_module(module), name)
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)


def make_callable(package: str, module: str, function: str) -> None:
    """Let a call of `package` call `function` of `module`, which is imported on first use."""
    target: Any = sys.modules[package]
    target.__class__ = CallablePackage
    target._function = (module, function)
