"""Where a run comes from: versions, machine, commit and command, for the record in its config.json."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("cic", "torch", "mujoco", "dm_control", "gymnasium", "numpy")


def provenance(device: str) -> dict[str, Any]:
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": f"{platform.system()} {platform.machine()}, {device}",
        "commit": _commit(),
        "command": shlex.join(sys.argv),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a source tree that is not installed
            continue
    return found


def _commit() -> str | None:
    """Of the repository in which the run was started, if it is one."""
    try:
        said = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() if said.returncode == 0 else None
