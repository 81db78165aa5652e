"""Children that live as long as they are let: forked from a process that has imported everything, so each is cheap."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import resource
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cic import api
from cic.core.errors import Interrupted, UserError

FINE, MISTAKE, STOPPED, TRACEBACK, HANGS = 0, 2, 130, 1, 99
SECONDS = 120.0


def preload() -> None:
    """What the first run of a process would import."""
    import cma  # noqa: F401
    import gymnasium  # noqa: F401
    import mujoco  # noqa: F401
    import torch._dynamo
    import torch.utils.tensorboard

    import cic.envs.gridworld
    import cic.envs.gym
    import cic.envs.suite.point_mass
    import cic.explore.agent_pool
    import cic.export
    import cic.report
    import cic.report.film
    import cic.report.skills
    import cic.sweep.driver  # noqa: F401

    torch.set_num_threads(1)
    origin = api.provenance("cpu")
    api.provenance = lambda device: origin  # asking pip and git takes as long as training does here
    gc.collect()
    gc.freeze()  # so that children do not copy what they never touch


@dataclass(frozen=True)
class End:
    """How a child ended: its exit code (negative for a signal), what it said, and the most memory it had."""

    code: int
    said: str
    megabytes: float

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


def live(action: Callable[[], Any], scratch: Path, seconds: float = SECONDS) -> End:
    """Fork, act, and see how it ended. `scratch` is a file for what the child says."""
    scratch.unlink(missing_ok=True)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _act(action, scratch)
    handle = os.pidfd_open(child)
    try:
        ended, _, _ = select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    if not ended:
        return End(HANGS, f"no end after {seconds:g} s", 0.0)
    said = scratch.read_text(errors="replace") if scratch.exists() else ""
    return End(os.waitstatus_to_exitcode(status), said, usage.ru_maxrss / 1024)


def _act(action: Callable[[], Any], scratch: Path) -> None:
    """The child: never returns."""
    out = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(out, 1)
    os.dup2(out, 2)
    warnings.simplefilter("ignore")
    code = TRACEBACK
    try:
        code = _ended(action)
    finally:  # whatever happens, the child must not go on as if it were the campaign
        os._exit(code)


def _ended(action: Callable[[], Any]) -> int:
    """Act, say how it ended as the command line does, and give the code."""
    try:
        action()
        return FINE
    except BaseException as error:
        sys.setprofile(None)
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # what is said is no file of the run
        if isinstance(error, SystemExit):
            return int(error.code or 0)
        if isinstance(error, UserError):
            print(f"cic: {error}", flush=True)
            return MISTAKE
        if isinstance(error, OSError):  # which the command line says in one line too
            print(f"cic: {error.filename}: {error.strerror}", flush=True)
            return MISTAKE
        if isinstance(error, (Interrupted, KeyboardInterrupt)):
            print(f"cic: {error}", flush=True)
            return STOPPED
        traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        return TRACEBACK


# ---- faults that a child arranges for itself -------------------------------------------------------------------


def at_event(number: int, deed: Callable[[], Any]) -> None:
    """At the n-th call of any function, Python's or C's."""
    left = number

    def watch(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            sys.setprofile(None)
            deed()

    sys.setprofile(watch)


def kill(number: int = signal.SIGKILL) -> None:
    os.kill(os.getpid(), number)


def at_operation(owner: Any, name: str, number: int, deed: Callable[..., Any], moment: str) -> None:
    """Before or after the n-th call of an operation on files."""
    original, count = getattr(owner, name), 0

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        if count == number and moment == "before":
            deed(*args)
        result = original(*args, **kwargs)
        if count == number and moment == "after":
            deed(*args)
        return result

    setattr(owner, name, wrapped)


def limit_files(size: int) -> None:
    """No file grows beyond `size` bytes, whoever writes it: Python, safetensors or TensorBoard."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


class SmallDisk:
    """A tmpfs of this process and its children alone; gone when they are. Needs root."""

    def __init__(self, where: Path, size: int) -> None:
        self._libc, self._where = ctypes.CDLL(None, use_errno=True), str(where).encode()
        self._call("unshare", 0x00020000)  # a mount namespace of its own
        self._call("mount", b"none", b"/", None, 1 << 18 | 1 << 14, None)  # private, recursively
        self._call("mount", b"tmpfs", self._where, b"tmpfs", 0, f"size={size}".encode())

    def resize(self, size: int) -> None:
        self._call("mount", b"tmpfs", self._where, b"tmpfs", 32, f"size={size}".encode())

    def read_only(self, yes: bool) -> None:
        self._call("mount", b"tmpfs", self._where, b"tmpfs", 32 | int(yes), None)

    def _call(self, name: str, *args: Any) -> None:
        if getattr(self._libc, name)(*args) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")
