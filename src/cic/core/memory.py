"""The free memory of this machine."""

from __future__ import annotations

import os


def available_memory() -> int | None:
    """The bytes of free memory; None where this is unknown."""
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):  # Windows has no sysconf
            return None
