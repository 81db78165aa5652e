"""The one place that uses `torch.compile`: a function is compiled, or used without compilation after a warning.

Compiling CIC's gradients takes about 20 s, or 4 s with torch's cache on disk, and saves 3 to 4 ms per update at batch
256 and 2 to 39 ms at the paper's size (`python -m benchmarks updates`). Compiling saves time from about 5,000 updates;
`auto` compiles runs of at least twice as many. On CUDA it uses CUDA graphs (not tested).
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

Mode = Literal["auto", "on", "off"]
LONG_RUN = 10_000
"""Updates from which `auto` compiles."""


def wanted(mode: Mode, updates: int) -> bool:
    """Whether a run of this many updates is compiled. Warns if it should be and the machine lacks something."""
    if mode == "off" or (mode == "auto" and updates < LONG_RUN):
        return False
    if lacking := missing():
        warnings.warn(f"{lacking}: updates run without torch.compile, a little slower", stacklevel=2)
    return not lacking


def missing() -> str | None:
    """Return what this machine lacks for compiling, or None."""
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if not shutil.which(compiler):
        return f"no C++ compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "no Python headers (Debian: python3-dev)"
    return None


class Compiled:
    """A compiled function. If compiling fails, this function and all others run uncompiled, after one warning."""

    def __init__(self, function: Callable[..., Any], device: torch.device, siblings: list[Compiled]) -> None:
        import torch._dynamo

        torch._dynamo.config.trace_autograd_ops = True  # gradients are part of the graph
        torch._dynamo.config.recompile_limit = 100  # sizes in one process
        warnings.filterwarnings(
            "ignore", category=FutureWarning, module=r"torch\._inductor"
        )  # addressed to torch's authors
        options: dict[str, Any] = {"cpp_wrapper": True, "compile_threads": 1}
        if device.type == "cuda":
            options = {"triton.cudagraphs": True}
        # Modules do not change once they are compiled: no guards on them, which saves 3 % of a small update.
        options["guard_filter_fn"] = torch.compiler.skip_guard_on_all_nn_modules_unsafe
        self._plain = function
        self._call = torch.compile(_with_own_code(function), dynamic=False, options=options)
        self._siblings = siblings
        siblings.append(self)

    def __call__(self, *inputs: Any) -> Any:
        from torch._dynamo.exc import TorchDynamoException

        try:
            return self._call(*inputs)
        except TorchDynamoException as error:
            reason = str(error).strip().splitlines()[0]
            warnings.warn(f"torch.compile failed ({reason}): updates run without it, a little slower", stacklevel=2)
            for sibling in self._siblings:
                sibling._call = sibling._plain
            return self._plain(*inputs)


def _with_own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy a function with its own code object. torch stores compiled graphs by code object, and without guards on
    modules the graph of another method's critic would accept this one's inputs (METRA's and CSF's, for example)."""
    plain = getattr(function, "__func__", function)
    code = plain.__code__.replace()
    copy = types.FunctionType(code, plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__)
    return types.MethodType(copy, function.__self__) if isinstance(function, types.MethodType) else copy
