"""Leases: never two owners at once, and never none for ever."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from helpers import steady
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cic.sweep import leases
from cic.sweep.leases import Heartbeat, Lease, holder_of, take
from cic.sweep.storage import FolderStorage, Storage, open_storage

SECONDS = 10.0


class Owners(RuleBasedStateMachine):
    """Several who take, renew, free and outlive the lease of one run while time goes on."""

    @initialize()
    def begin(self) -> None:
        self.now = 1000.0
        self.storage: Storage = open_storage(f"memory://{uuid4().hex}")
        self.held: dict[int, tuple[Lease, float]] = {}
        self.last: int | None = None

    def believes(self, owner: int) -> bool:
        """Whether an owner who looks at the clock may still think that the run is his."""
        return owner in self.held and self.now <= self.held[owner][1] + SECONDS

    @rule(owner=st.integers(0, 3))
    def try_to_take(self, owner: int) -> None:
        if self.believes(owner):
            return
        anyone = any(self.believes(other) for other in self.held)
        lease = take(self.storage, "run", str(owner), SECONDS, lambda: self.now)
        assert (lease is not None) == (not anyone)
        if lease is not None:
            self.held[owner], self.last = (lease, self.now), owner

    @rule(owner=st.integers(0, 3))
    def renew(self, owner: int) -> None:
        if owner in self.held:
            expected = self.believes(owner) or self.last == owner  # one who slept, but whom nobody has missed
            assert self.held[owner][0].renew() == expected
            if expected:
                self.held[owner] = self.held[owner][0], self.now
            else:
                del self.held[owner]

    @rule(owner=st.integers(0, 3))
    def release(self, owner: int) -> None:
        if self.believes(owner):
            self.held.pop(owner)[0].release()

    @rule(seconds=st.floats(0.1, 15))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def one_owner(self) -> None:
        if hasattr(self, "held"):
            assert sum(self.believes(owner) for owner in self.held) <= 1


TestOwners = Owners.TestCase
TestOwners.settings = steady


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_of_many_who_try_at_once_one_gets_it(where: str, tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path) if where == "folder" else f"memory://{uuid4().hex}")
    for attempt in range(5):
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(partial(take, storage, f"run{attempt}"), map(str, range(8))))
        assert sum(lease is not None for lease in found) == 1


def test_a_dead_process_of_this_machine_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FolderStorage(tmp_path)
    child = os.fork()
    if child == 0:
        take(storage, "run", "dead", 1e6)
        os._exit(0)
    os.waitpid(child, 0)
    holder = holder_of(storage, "run")
    assert holder is not None
    assert holder.owner == "dead"
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(leases, "this_machine", lambda: "another")
        assert take(storage, "run", "other machine") is None  # cannot know, and waits for the time to pass
    assert take(storage, "run", "same machine") is not None


def test_a_lease_cut_off_while_it_was_written_is_no_lease(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    storage.write("run/.lease-1.json", b'{"own')
    lease = take(storage, "run", "me")
    assert lease is not None
    assert lease.number == 2


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    storage = FolderStorage(tmp_path)
    assert take(storage, "run", "first") is not None
    assert take(storage, "run", "second") is None


def test_a_heartbeat_keeps_a_lease_and_tells_of_its_loss(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    lease = take(storage, "run", "me", seconds=0.4)
    assert lease is not None
    lost = threading.Event()
    with Heartbeat(lease, lost.set):
        time.sleep(1.0)
        assert take(storage, "run", "you") is None
        assert not lost.is_set()
        storage.create("run/.lease-2.json", b"{}")  # somebody thought that we were gone
        assert lost.wait(2)
