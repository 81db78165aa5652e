"""Who works on a run: a lease in its folder, which expires when its owner is gone.

Leases are numbered files, `.lease-1.json`, `.lease-2.json`, …; the highest number is the one that counts. Whoever finds
it free or expired creates the next, which only one can. None is ever deleted, so a number never means two leases.
Clocks of the nodes should agree to a few seconds, which is little beside the time after which a lease expires.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from cic.sweep.storage import Storage

SECONDS = 60.0
"""After so long without a sign of life, a run is taken over."""
_NAME = re.compile(r"\.lease-(\d+)\.json")
_BEATS = 4  # renewals within the time after which a lease expires


@dataclass(frozen=True)
class Holder:
    """What a lease says."""

    owner: str
    host: str
    pid: int
    time: float
    """Of the latest renewal."""
    seconds: float
    """How long it is good for without another."""
    free: bool = False

    def is_gone(self, now: float, host: str = "") -> bool:
        """Free, expired, or a process of this machine that is no more."""
        if self.free or now > self.time + self.seconds:
            return True
        return self.host == (host or this_machine()) and not _is_alive(self.pid)


class Lease:
    """One that we hold. `renew` says whether we still do."""

    def __init__(self, storage: Storage, folder: str, number: int, holder: Holder, clock: Callable[[], float]) -> None:
        self.storage, self.folder, self.number, self.holder, self.clock = storage, folder, number, holder, clock

    def renew(self) -> bool:
        renewed = replace(self.holder, time=self.clock())
        if _highest(self.storage, self.folder) != self.number:
            return False
        if renewed.time <= self.holder.time + self.holder.seconds:
            self._write(renewed)
            return True
        # We slept too long, and somebody may be taking it over: whoever creates the next number has it.
        if not self.storage.create(_file(self.folder, self.number + 1), _text(renewed)):
            return False
        self.number, self.holder = self.number + 1, renewed
        return True

    def release(self) -> None:
        self._write(replace(self.holder, free=True))

    def _write(self, holder: Holder) -> None:
        self.storage.write(_file(self.folder, self.number), _text(holder))
        self.holder = holder


def take(
    storage: Storage, folder: str, owner: str, seconds: float = SECONDS, clock: Callable[[], float] = time.time
) -> Lease | None:
    """The lease of a run, or None while somebody else has it."""
    number = _highest(storage, folder)
    if number:
        held = _read(storage, folder, number)
        if held is not None and not held.is_gone(clock()):
            return None
    holder = Holder(owner, this_machine(), os.getpid(), clock(), seconds)
    if not storage.create(_file(folder, number + 1), _text(holder)):
        return None
    return Lease(storage, folder, number + 1, holder, clock)


def holder_of(storage: Storage, folder: str) -> Holder | None:
    """Who has the lease, or had it last."""
    number = _highest(storage, folder)
    return _read(storage, folder, number) if number else None


@lru_cache(maxsize=1)
def this_machine() -> str:
    """A name that no other node has: containers on one machine do not see each other's processes."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()} {_boot()} {space}".strip()


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()[:8]
    except OSError:
        return ""


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _file(folder: str, number: int) -> str:
    return f"{folder}/.lease-{number}.json"


def _highest(storage: Storage, folder: str) -> int:
    found = (_NAME.fullmatch(name) for name in storage.names(folder))
    return max((int(match[1]) for match in found if match), default=0)


def _read(storage: Storage, folder: str, number: int) -> Holder | None:
    """None if it cannot be read: its maker died while writing, on a file system without links."""
    try:
        return Holder(**storage.read_object(_file(folder, number)))
    except TypeError:
        return None


def _text(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()


class Heartbeat:
    """While entered, renews a lease from a thread; `lost` is called once if somebody else has it."""

    def __init__(self, lease: Lease, lost: Callable[[], None]) -> None:
        self.lease, self.lost = lease, lost
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._end.wait(self.lease.holder.seconds / _BEATS):
            try:
                held = self.lease.renew()
            except Exception:  # the storage stumbles: there is time to try again until the lease expires
                held = self.lease.clock() <= self.lease.holder.time + self.lease.holder.seconds
            if not held and not self._end.is_set():
                self.lost()
                return
