"""Where a run comes from: versions, machine, commit and command, for the record in config.json."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("cic", "torch", "mujoco", "dm_control", "gymnasium", "numpy")


def provenance(device: str) -> dict[str, Any]:
    """The versions, the machine, the commit and the command of this process."""
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": f"{platform.system()} {platform.machine()}, {_processor(device)}",
        "commit": _commit(),
        "command": _command(),
    }


def _command() -> str:
    """The command line, without the path of the program."""
    program = Path(sys.argv[0]).name
    return shlex.join(["cic" if program in ("cic", "cli.py") else program, *sys.argv[1:]])


def _processor(device: str) -> str:
    """The model of the CPU or GPU that the networks run on."""
    if device.startswith("cuda"):
        import torch

        return f"{device}: {torch.cuda.get_device_name(device)}"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not on Linux
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{device}: {models[0] if models else platform.processor() or 'unknown'}"


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a source tree that is not installed
            continue
    return found


def _commit() -> str | None:
    """The commit of the repository in which the run was started, if it is one."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
