"""The viser server, by default reachable from this machine only, with one viewer per open page."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import io
import os
import socket
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from cic.core.config import with_fields
from cic.core.errors import UserError
from cic.explore.access import checked_requests
from cic.explore.agent_pool import AgentPool, ExploreOptions
from cic.explore.loaded_agent import LoadedAgent, available_agents
from cic.explore.viewer import Viewer

TRIED_PORTS = 100
_MEMORY_SECONDS = 1.0
"""Time after a page was closed until its memory is returned, in which its thread ends."""


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
    raise UserError(f"the ports {wanted} to {wanted + TRIED_PORTS - 1} are all in use: choose another `port`")


class Explorer:
    """A running server; a context manager."""

    def __init__(self, pool: AgentPool, host: str, port: int) -> None:
        self._pool, self._host, self._viewers = pool, host, dict[int, Viewer]()
        self._lock = threading.Lock()
        self._cleaning: threading.Timer | None = None
        viser = _viser()
        # the page may close while its thread sends a message
        warnings.filterwarnings("ignore", message="Queued a .* on a closed connection")

        class Server(viser.ViserServer):  # type: ignore[misc,name-defined]
            def request_share_url(self, verbose: bool = True) -> str | None:
                """Refuse the request of a page to open a public tunnel to this machine."""
                return None

        with _quiet(), checked_requests(host):
            self._server = Server(host=host, port=free_port(host, port), label="cic explore", verbose=False)
        self._server.gui.configure_theme(show_logo=False, show_share_button=False, brand_color=(30, 110, 160))
        self._server.scene.world_axes.visible = False
        self._server.scene.configure_environment_map("warehouse", environment_intensity=0.45)  # part of viser
        self._server.on_client_connect(self._on_connect)
        self._server.on_client_disconnect(self._on_disconnect)

    @property
    def url(self) -> str:
        """The address of the page on this machine."""
        return f"http://{'localhost' if self._host == '0.0.0.0' else self._host}:{self.port}"

    @property
    def agent(self) -> LoadedAgent:
        """The agent that is shown first."""
        return self._pool.agent(self._pool.names[0])

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
            if self._cleaning is None or not self._cleaning.is_alive():
                self._cleaning = threading.Timer(_MEMORY_SECONDS, return_memory)
                self._cleaning.daemon = True
                self._cleaning.start()

    def close(self) -> None:
        viewers = self.viewers
        for viewer in viewers:
            viewer.stop()
        self._pool.close()
        for viewer in viewers:
            viewer.join(5.0)
        if self._cleaning is not None:
            self._cleaning.cancel()
        with _quiet():
            self._server.stop()

    def __enter__(self) -> Explorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def explore(
    runs: Path | str | Sequence[Path | str] = "quadruped",
    options: ExploreOptions | None = None,
    *,
    skill: Sequence[float] | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    **fields: Any,
) -> Explorer:
    """Start a page on which agents and their skills are explored live in the browser.

    Args:
        runs: Run folders, or bundled agents (`"steer_walker"`, `"quadruped"`, `"walker"`, `"point_mass"`). The first is
            shown.
        options: Options of the explorer.
        skill: Start with this skill: a number per dimension, one number for all dimensions, or the index of a one-hot
            skill.
        host: Address to listen on; `"0.0.0.0"` lets everybody in who can reach this machine.
        port: Port to listen on. If it is in use, the next free one is taken.
        **fields: Fields of `ExploreOptions` by name; they override `options`.

    Returns:
        The running server: `url` is the page's address, and `close()` ends it. It is a context manager as well.

    Example:
        ```python
        with cic.explore("walker", port=0) as explorer:
            print(explorer.url)
        ```
    """
    options = with_fields(options or ExploreOptions(), fields)
    names = [str(run) for run in ([runs] if isinstance(runs, Path | str) else runs)]
    pool = AgentPool(available_agents(names), options)
    agent = pool.agent(pool.names[0])
    for name in names[1:]:
        pool.agent(name)  # report a folder that cannot be loaded now, not when it is chosen
    if skill is not None:
        pool.options = replace(pool.options, skill=agent.space.check(skill))
    return Explorer(pool, host, port)


def return_memory() -> None:
    """Free what closed pages occupied, which takes Python and the C library much longer by themselves.

    A page and its viewer refer to each other, with megabytes of meshes, and Python looks for such cycles the less often
    the more objects there are. The C library keeps freed memory of threads that have ended.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:  # glibc
        trim(0)


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
