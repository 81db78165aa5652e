"""The requests that the explorer answers. It has no password, so other websites in the same browser must be refused.

A website can send requests to a server on this machine: through a name of its own that it points at 127.0.0.1 (DNS
rebinding), or by opening a websocket. Browsers state both in headers that the website cannot change: `Host` is the name
by which the server was called, `Origin` the website that sends the request.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

LOCAL = ("127.0.0.1", "::1", "localhost")


def is_allowed(host: str, headers: Any) -> bool:
    """Whether a request with these headers may reach a server that listens on `host`."""
    called, origins = headers.get_all("Host"), headers.get_all("Origin")
    if len(called) != 1 or len(origins) > 1 or not _is_own_name(host, _name(f"//{called[0]}")):
        return False
    return not origins or urlsplit(origins[0]).netloc.lower() == called[0].lower()


def _is_own_name(host: str, name: str | None) -> bool:
    """Whether the server may be called by this name: localhost, what it listens on, and addresses that lead there."""
    if name is None:
        return False
    if name in ("localhost", host.lower()):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return host not in LOCAL and name in (socket.gethostname().lower(), socket.getfqdn().lower())
    return address.is_loopback or host not in LOCAL  # an address cannot be pointed elsewhere


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


@contextmanager
def checked_requests(host: str) -> Iterator[None]:
    """Servers of websockets that are started while entered refuse all other requests. viser has no option for it."""
    from websockets.asyncio import server
    from websockets.datastructures import Headers
    from websockets.http11 import Response

    serve = server.serve

    def checked(*args: Any, process_request: Callable[[Any, Any], Any], **kwargs: Any) -> Any:
        def process(connection: Any, request: Any) -> Any:
            if is_allowed(host, request.headers):
                return process_request(connection, request)
            return Response(403, "Forbidden", Headers(), b"the explorer was called by a foreign name or website\n")

        return serve(*args, process_request=process, **kwargs)

    with patch.object(server, "serve", checked):
        yield
