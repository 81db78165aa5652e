"""Whether a run with the status "running" is still alive. A killed process cannot change its status."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from typing import Any

FORGOTTEN = 600.0
"""Seconds without a heartbeat after which a run on another machine is dead; heartbeats come every 30 seconds."""
RECYCLED = 3600.0
"""The same on this machine, where the process is looked up; after that its number may belong to another process."""


def is_dead(status: dict[str, Any]) -> bool:
    """Judge by the heartbeat in status.json; without a heartbeat the run is not taken for dead."""
    host, pid, age = status.get("host"), status.get("pid"), _age(status.get("updated"))
    if not isinstance(host, str) or not isinstance(pid, int) or age is None:
        return False
    if host == platform.node() and os.name == "posix":  # elsewhere os.kill(pid, 0) ends the process
        return age > RECYCLED or not _exists(pid)
    return age > FORGOTTEN


def _age(updated: Any) -> float | None:
    try:
        return (datetime.now(timezone.utc) - datetime.fromisoformat(str(updated))).total_seconds()
    except (ValueError, TypeError):  # not a time, or one without a time zone
        return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:  # the process of another user
        return True
    except (OSError, OverflowError):
        return False
    return True
