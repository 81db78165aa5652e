"""The server: viser's, bound to this machine alone unless told otherwise, with a viewer for every open page."""

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
from cic.explore.gallery import Gallery
from cic.explore.viewer import Viewer

TRIED = 100
"""Ports from the wanted one on."""


def free_port(host: str, wanted: int) -> int:
    """The wanted port, or the next that nobody listens on."""
    if not 0 <= wanted < 65_536:
        raise UserError(f"a port lies between 0 and 65535, not at {wanted}")
    for port in range(wanted, min(wanted + TRIED, 65_536)):
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                return int(probe.getsockname()[1])
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise UserError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    raise UserError(f"the ports {wanted} to {wanted + TRIED - 1} are all in use: choose another with --port")


class Explorer:
    """A running server. Close it, or leave its `with`."""

    def __init__(self, gallery: Gallery, host: str, port: int) -> None:
        self._gallery, self._viewers = gallery, dict[int, Viewer]()
        self._lock = threading.Lock()
        viser = _viser()
        # a page may be gone between two lines of its thread, which ends a moment later
        warnings.filterwarnings("ignore", message="Queued a .* on a closed connection")

        class Server(viser.ViserServer):  # type: ignore[misc,name-defined]
            def request_share_url(self, verbose: bool = True) -> str | None:
                """A page could ask viser to open a public tunnel to this machine. Not here."""
                return None

        with _quiet():
            self._server = Server(host=host, port=free_port(host, port), label="cic explore", verbose=False)
        self._server.gui.configure_theme(show_logo=False, show_share_button=False, brand_color=(30, 110, 160))
        self._server.scene.world_axes.visible = False
        self._server.scene.configure_environment_map("warehouse", environment_intensity=0.45)  # viser brings it along
        self._server.on_client_connect(self._enter)
        self._server.on_client_disconnect(self._leave)

    @property
    def port(self) -> int:
        return int(self._server.get_port())

    @property
    def viewers(self) -> list[Viewer]:
        with self._lock:
            return list(self._viewers.values())

    def _enter(self, client: Any) -> None:
        with self._lock:
            full = len(self._viewers) >= self._gallery.options.viewers
            if not full:
                viewer = self._viewers[client.client_id] = Viewer(client, self._gallery, self._forget)
        if full:
            client.gui.add_markdown(
                f"**{self._gallery.options.viewers} pages are open already.** Close one, then reload."
            )
            return
        viewer.start()

    def _leave(self, client: Any) -> None:
        with self._lock:
            viewer = self._viewers.get(client.client_id)
        if viewer is not None:
            viewer.leave()

    def _forget(self, viewer: Viewer) -> None:
        """Its environments are closed by now."""
        with self._lock:
            self._viewers.pop(viewer.client.client_id, None)

    def close(self) -> None:
        viewers = self.viewers
        for viewer in viewers:
            viewer.leave()
        self._gallery.close()
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
    """viser draws a box with its address when it starts; ours is printed by the command line."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
