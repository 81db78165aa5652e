"""A clip as a file: the frames that a browser drew, as MP4 where ffmpeg is there, else as GIF."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

FRAMES_PER_SECOND = 25
SIZE = (480, 640)

Frames = Sequence[npt.NDArray[np.uint8]]


def encode(frames: Frames) -> tuple[str, bytes]:
    """The suffix and the file's bytes."""
    try:
        return ".mp4", _mp4(frames)
    except ImportError:
        return ".gif", _gif(frames)


def _mp4(frames: Frames) -> bytes:
    import imageio
    import imageio_ffmpeg  # noqa: F401  it brings the program

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        imageio.mimwrite(path, list(frames), fps=FRAMES_PER_SECOND, macro_block_size=1, quality=7)
        return path.read_bytes()


def _gif(frames: Frames) -> bytes:
    from PIL import Image

    pictures = [Image.fromarray(frame) for frame in frames]
    written = io.BytesIO()
    pictures[0].save(
        written, "GIF", save_all=True, append_images=pictures[1:], duration=1000 // FRAMES_PER_SECOND, loop=0
    )
    return written.getvalue()
