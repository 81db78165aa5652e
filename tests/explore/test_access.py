"""Other websites in the same browser do not reach the explorer, and closed pages return their memory."""

from __future__ import annotations

import gc
import http.client
import socket
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import viser
from open_page import OpenPage, wait_until
from websockets.datastructures import Headers
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from cic.explore import AgentPool, ExploreOptions, Explorer, server
from cic.explore.access import is_allowed


@pytest.fixture(scope="module")
def explorer() -> Iterator[Explorer]:
    with Explorer(AgentPool(["point_mass"], ExploreOptions(count=2, steps=10)), "127.0.0.1", 18180) as running:
        yield running


def status(port: int, host: str, origin: str | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.putrequest("GET", "/", skip_host=True)
    connection.putheader("Host", host)
    if origin is not None:
        connection.putheader("Origin", origin)
    connection.endheaders()
    found = connection.getresponse().status
    connection.close()
    return found


def test_page_is_served_under_its_own_names_only(explorer: Explorer) -> None:
    port = explorer.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "localhost:9000"):
        assert status(port, host) == 200
    for host in (f"attacker.example:{port}", "attacker.example", "192.0.2.7", "", "localhost.attacker.example"):
        assert status(port, host) == 403
    assert status(port, f"localhost:{port}", "https://attacker.example") == 403


@pytest.mark.parametrize(
    "origin", ["http://attacker.example", "null", "http://localhost", "http://127.0.0.1:1", "file://"]
)
def test_websocket_of_another_website_is_refused(explorer: Explorer, origin: str) -> None:
    protocol = [f"viser-v{viser.__version__}"]
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://127.0.0.1:{explorer.port}", origin=origin, subprotocols=protocol)  # type: ignore[arg-type]
    assert not explorer.viewers


def test_websocket_of_the_page_itself_is_accepted(explorer: Explorer) -> None:
    address, protocol = f"127.0.0.1:{explorer.port}", f"viser-v{viser.__version__}"
    with connect(f"ws://{address}", origin=f"http://{address}", subprotocols=[protocol], max_size=None) as page:  # type: ignore[arg-type,list-item]
        assert page.recv(timeout=20)


@pytest.mark.parametrize(
    ("listens", "host", "allowed"),
    [
        ("0.0.0.0", "192.0.2.7:8080", True),
        ("0.0.0.0", f"{socket.gethostname().lower()}:8080", True),
        ("0.0.0.0", "attacker.example:8080", False),
        ("robot.lan", "robot.lan:8080", True),
        ("robot.lan", "other.lan:8080", False),
        ("127.0.0.1", f"{socket.gethostname().lower()}:8080", False),
        ("127.0.0.1", "[::1", False),
        ("::1", "[::1]:8080", True),
    ],
)
def test_what_host_names_is_allowed(listens: str, host: str, allowed: bool) -> None:
    if socket.gethostname().lower() != "localhost" or "localhost" not in host:
        assert is_allowed(listens, Headers([("Host", host)])) is allowed
    assert not is_allowed(listens, Headers([("Host", host), ("Host", "localhost")]))
    assert not is_allowed(listens, Headers())


def test_memory_is_returned_after_a_page_was_closed(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MEMORY_SECONDS", 0.2)
    page = OpenPage(explorer.port)
    wait_until(lambda: page.frames > 5)
    viewer = weakref.ref(explorer.viewers[0])
    gc.disable()
    try:
        page.close()
        wait_until(lambda: viewer() is None)
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.timeout(600)
def test_opening_pages_does_not_take_more_and_more_memory() -> None:
    """Each page of the quadruped took about 18 MB more before; now the last ten take next to nothing."""

    def megabytes() -> float:
        time.sleep(3 * server._MEMORY_SECONDS)
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    with Explorer(AgentPool(["quadruped"], ExploreOptions(count=2, steps=10)), "127.0.0.1", 18280) as running:
        taken = []
        for count in (5, 10):
            for _ in range(count):
                page = OpenPage(running.port)
                wait_until(lambda page=page: page.frames > 5, 60)  # type: ignore[misc]
                page.close()
                wait_until(lambda: not running.viewers, 60)
            taken.append(megabytes())
    assert taken[1] - taken[0] < 40
