"""Encoding of the frames that a browser drew: MP4 if imageio-ffmpeg is installed, otherwise GIF."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

FRAMES_PER_SECOND = 25
SIZE = (480, 640)


def encode(frames: Sequence[npt.NDArray[np.uint8]]) -> tuple[str, bytes]:
    """Return the suffix and the content of the file."""
    import imageio  # a dependency of viser

    try:
        import imageio_ffmpeg  # noqa: F401
    except ImportError:
        buffer = io.BytesIO()
        imageio.mimwrite(buffer, list(frames), format="GIF", duration=1000 / FRAMES_PER_SECOND, loop=0)
        return ".gif", buffer.getvalue()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        imageio.mimwrite(path, list(frames), fps=FRAMES_PER_SECOND, macro_block_size=1, quality=7)
        return ".mp4", path.read_bytes()
