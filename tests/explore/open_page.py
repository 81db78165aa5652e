"""A page without a browser: viser's websocket, spoken just well enough to be a viewer and to use its controls."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import msgspec.msgpack
import viser
import zstandard
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect


class OpenPage:
    """Counts what arrives, by type of message; keeps the controls by their labels."""

    def __init__(self, port: int) -> None:
        self._socket = connect(
            f"ws://127.0.0.1:{port}", subprotocols=[f"viser-v{viser.__version__}"], max_size=None, compression=None
        )
        self.seen: Counter[str] = Counter()
        self.frames = 0
        self.labels: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.markdown: list[str] = []
        self.notes: list[str] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        camera = {"wxyz": (1, 0, 0, 0), "position": (3, 3, 3), "fov": 1.3, "near": 0.01, "far": 1000.0}
        aim = {"image_height": 800, "image_width": 800, "look_at": (0, 0, 0), "up_direction": (0, 0, 1)}
        self._send("ViewerCameraMessage", **camera, **aim)

    def _send(self, kind: str, **content: Any) -> None:
        self._socket.send(msgspec.msgpack.encode({"type": kind, **content}))

    def _listen(self) -> None:
        unpack = zstandard.ZstdDecompressor()
        try:
            for raw in self._socket:
                size, packed = (int.from_bytes(raw[at : at + 8], "little") for at in (0, 8))
                inner = msgspec.msgpack.decode(unpack.decompress(raw[16 : 16 + packed], max_output_size=size))
                for message in inner["messages"]:
                    self._hear(message)
        except ConnectionClosed:
            pass

    def _hear(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        self.seen[kind] += 1
        if kind == "LocalStorageGetItemRequestMessage":
            self._send(
                "LocalStorageGetItemResponseMessage", value=None, error=None, request_uuid=message["request_uuid"]
            )
        changes = message.get("updates") or {}
        self.frames += "batched_positions" in changes
        props = message.get("props") or {}
        self.notes += [props["body"]] if "body" in props else []
        if "uuid" in message and isinstance(props, dict) and "label" in props:
            self.labels[props["label"]] = message["uuid"]
        self.markdown += [content["_markdown"] for content in (props, changes) if "_markdown" in content]
        for content in (props, changes):
            if isinstance(content, dict) and isinstance(content.get("content"), str):
                self.texts[message["uuid"]] = content["content"]

    def set(self, label: str, value: Any) -> None:
        """As a hand would set a slider, tick a box or press a button."""
        self._send("GuiUpdateMessage", uuid=self.labels[label], updates={"value": value})

    def set_until(self, label: str, value: Any, condition: Any) -> None:
        """Once more each second: a control that a map which has just been made replaces does not hear it."""
        for _ in range(30):
            self.set(label, value)
            end = time.monotonic() + 1
            while time.monotonic() < end:
                if condition():
                    return
                time.sleep(0.01)
        raise AssertionError("in vain")

    def ask_for_a_tunnel(self) -> None:
        self._send("ShareUrlRequest")

    def close(self) -> None:
        self._socket.close()
        self._thread.join(5)

    def vanish(self) -> None:
        """Without a word, as when the browser is killed."""
        self._socket.socket.close()


def wait_until(condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.02)
