"""Whether a run that says "running" still is: a process that was killed could not say otherwise."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from typing import Any

FORGOTTEN = 600.0
"""Seconds without a sign of life after which a run elsewhere is dead; they come every half minute."""
RECYCLED = 3600.0
"""The same here, where the process can be asked for; by then its number may be another's."""


def is_dead(status: dict[str, Any]) -> bool:
    """By the heartbeat in status.json; a status without one (of version 0.1) tells nothing."""
    host, pid, age = status.get("host"), status.get("pid"), _age(status.get("updated"))
    if not isinstance(host, str) or not isinstance(pid, int) or age is None:
        return False
    if host == platform.node():
        return age > RECYCLED or not _exists(pid)
    return age > FORGOTTEN


def _age(updated: Any) -> float | None:
    try:
        return (datetime.now(timezone.utc) - datetime.fromisoformat(str(updated))).total_seconds()
    except (ValueError, TypeError):  # no time, or one without a zone
        return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:  # somebody else's
        return True
    except (OSError, OverflowError):
        return False
    return True
