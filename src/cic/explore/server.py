"""The viser server, by default reachable from this machine only, with one viewer per open page."""

from __future__ import annotations

import contextlib
import errno
import io
import socket
import threading
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from cic.core.errors import UserError
from cic.explore.agent_pool import AgentPool
from cic.explore.viewer import Viewer

TRIED_PORTS = 100


def free_port(host: str, wanted: int) -> int:
    """Return the wanted port, or the next free one."""
    if not 0 <= wanted < 65_536:
        raise UserError(f"port must be between 0 and 65535, not {wanted}")
    for port in range(wanted, min(wanted + TRIED_PORTS, 65_536)):
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                return int(probe.getsockname()[1])
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise UserError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    raise UserError(f"the ports {wanted} to {wanted + TRIED_PORTS - 1} are all in use: choose another with --port")


class Explorer:
    """A running server; a context manager."""

    def __init__(self, pool: AgentPool, host: str, port: int) -> None:
        self._pool, self._viewers = pool, dict[int, Viewer]()
        self._lock = threading.Lock()
        viser = _viser()
        # the page may close while its thread sends a message
        warnings.filterwarnings("ignore", message="Queued a .* on a closed connection")

        class Server(viser.ViserServer):  # type: ignore[misc,name-defined]
            def request_share_url(self, verbose: bool = True) -> str | None:
                """Refuse the request of a page to open a public tunnel to this machine."""
                return None

        with _quiet():
            self._server = Server(host=host, port=free_port(host, port), label="cic explore", verbose=False)
        self._server.gui.configure_theme(show_logo=False, show_share_button=False, brand_color=(30, 110, 160))
        self._server.scene.world_axes.visible = False
        self._server.scene.configure_environment_map("warehouse", environment_intensity=0.45)  # part of viser
        self._server.on_client_connect(self._on_connect)
        self._server.on_client_disconnect(self._on_disconnect)

    @property
    def port(self) -> int:
        return int(self._server.get_port())

    @property
    def viewers(self) -> list[Viewer]:
        with self._lock:
            return list(self._viewers.values())

    def _on_connect(self, client: Any) -> None:
        with self._lock:
            full = len(self._viewers) >= self._pool.options.viewers
            if not full:
                viewer = self._viewers[client.client_id] = Viewer(client, self._pool, self._remove)
        if full:
            client.gui.add_markdown(f"**{self._pool.options.viewers} pages are open already.** Close one and reload.")
            return
        viewer.start()

    def _on_disconnect(self, client: Any) -> None:
        with self._lock:
            viewer = self._viewers.get(client.client_id)
        if viewer is not None:
            viewer.stop()

    def _remove(self, viewer: Viewer) -> None:
        """Remove a viewer whose environments are closed."""
        with self._lock:
            self._viewers.pop(viewer.client.client_id, None)

    def close(self) -> None:
        viewers = self.viewers
        for viewer in viewers:
            viewer.stop()
        self._pool.close()
        for viewer in viewers:
            viewer.join(5.0)
        with _quiet():
            self._server.stop()

    def __enter__(self) -> Explorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _viser() -> Any:
    try:
        import viser
    except ImportError:
        raise UserError("the explorer needs viser: pip install 'cic[explore]'") from None
    return viser


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the address that viser prints; the command line prints it."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
