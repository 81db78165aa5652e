"""The old import path of `cic.sweep.driver`. It will be removed in the next release."""

from __future__ import annotations

import warnings
from typing import Any

_RENAMED = {"Means": "ExecutionOptions", "Swept": "SweepResult", "run_plan": "run_plan"}


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cic.sweep import driver

    warnings.warn(f"cic.sweep.run.{name} is now cic.sweep.driver.{_RENAMED[name]}", DeprecationWarning, stacklevel=2)
    return getattr(driver, _RENAMED[name])
