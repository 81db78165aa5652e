"""Names of version 0.2: `run_plan(plan, out, Means(…))` is now `cic.sweep(plan, out=out, …)`. Removed after 0.3."""

from __future__ import annotations

import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    from cic.sweep import command, driver

    renamed = {"Means": command.SweepOptions, "Swept": driver.SweepResult, "run_plan": _run_plan}
    if name not in renamed:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"cic.sweep.run.{name} is deprecated: use cic.sweep", DeprecationWarning, stacklevel=2)
    return renamed[name]


def _run_plan(plan: Any, out: str, means: Any = None) -> Any:
    from cic.sweep.command import sweep

    return sweep(plan, means, out=out)
