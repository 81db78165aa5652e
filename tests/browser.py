"""Headless Chromium over its debugging pipe: enough to open a page, hear its complaints and read it back."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One tab. `events` collects everything that the page did."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._rest, self._count = to, back, b"", 0
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    _session: str | None = None
    process: subprocess.Popen[bytes]

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]  # type: ignore[no-any-return]
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._back, 1 << 20)
            if not piece:
                raise EOFError("chromium ended")
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)  # type: ignore[no-any-return]

    def open(self, page: Path | str, width: int = 1280, height: int = 900, mobile: bool = False) -> None:
        """A file, or an address."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.events.clear()
        self.send("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())
        self.evaluate("1")  # whatever the page said by now has arrived

    def evaluate(self, code: str) -> Any:
        return self.send("Runtime.evaluate", expression=code, returnByValue=True)["result"].get("value")

    def wait_for(self, code: str, seconds: float = 30.0) -> Any:
        """What the expression gives once it gives something."""
        end = time.monotonic() + seconds
        while not (found := self.evaluate(code)):
            assert time.monotonic() < end, f"in vain: {code}"
            time.sleep(0.05)
        return found

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def of(self, method: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event.get("method") == method]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def browser(flags: str = "--disable-gpu") -> Iterator[Browser]:
    """Chromium reads commands from its descriptor 3 and answers on 4."""
    assert CHROMIUM
    their_in, to = os.pipe()
    back, their_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = (
            f"exec '{CHROMIUM}' --headless --no-sandbox {flags} --disable-dev-shm-usage --no-first-run "
            f"--disable-background-networking --user-data-dir='{profile}' --remote-debugging-pipe "
            f"3<&{their_in} 4>&{their_out}"
        )
        process = subprocess.Popen(
            ["/bin/bash", "-c", command], pass_fds=(their_in, their_out), stderr=subprocess.DEVNULL
        )
        os.close(their_in)
        os.close(their_out)
        try:
            tab = Browser(to, back)
            tab.process = process
            yield tab
        finally:
            process.terminate()
            process.wait(timeout=20)
            os.close(to)
            os.close(back)
