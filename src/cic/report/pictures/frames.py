"""Composition of frames: titles, borders, grids and running returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

Frame = npt.NDArray[np.uint8]
Colour = Sequence[float]
RGB = tuple[int, int, int]
BLACK, WHITE = (25, 25, 25), (255, 255, 255)
_BORDER, _GAP, _LINE_HEIGHT = 3, 6, 18


def fit(frame: Frame, size: tuple[int, int]) -> Frame:
    """Scale a frame to `size`, with white bars if its aspect ratio differs."""
    if frame.shape[1::-1] == size:
        return frame
    from PIL import Image, ImageOps

    return np.asarray(ImageOps.pad(Image.fromarray(frame), size, color="white"))


def blend(frames: Sequence[Frame]) -> Frame:
    """Blend the last frame with the earlier ones."""
    if len(frames) == 1:
        return frames[0]
    return np.asarray(0.65 * frames[-1] + 0.35 * np.mean(frames[:-1], axis=0), np.uint8)


def tile(frame: Frame, title: str, colour: Colour) -> Frame:
    """Add a title and a border in the given colour."""
    height, width = frame.shape[:2]
    background = _rgb(colour)
    luminance = float(np.dot(background, (0.299, 0.587, 0.114)))
    canvas = _canvas(width + 2 * _BORDER, height + 2 * _BORDER + _LINE_HEIGHT, background)
    _write(canvas, (_BORDER + 3, 2), title, BLACK if luminance > 140 else WHITE, 13, width - 4)
    picture = np.array(canvas)
    picture[_BORDER + _LINE_HEIGHT : -_BORDER, _BORDER:-_BORDER] = frame
    return picture


def grid(tiles: Sequence[Frame], columns: int) -> Frame:
    """Arrange tiles in rows on white."""
    height, width = tiles[0].shape[:2]
    rows = -(-len(tiles) // columns)
    canvas = np.full((rows * (height + _GAP) + _GAP, columns * (width + _GAP) + _GAP, 3), 255, np.uint8)
    for index, one in enumerate(tiles):
        top, left = _GAP + index // columns * (height + _GAP), _GAP + index % columns * (width + _GAP)
        canvas[top : top + height, left : left + width] = one
    return canvas


def with_returns(frame: Frame, heading: str, time: str, returns: Mapping[str, float]) -> Frame:
    """Add the heading, the time and the running return of each task below the frame."""
    width = frame.shape[1]
    canvas = _canvas(width, 30 + _LINE_HEIGHT * len(returns), WHITE)
    _write(canvas, (8, 5), heading, BLACK, 13, width - 80)
    _write(canvas, (width - 66, 5), time, BLACK, 13, 64)
    for index, (task, value) in enumerate(returns.items()):
        name = "return" if task == "reward" else f"{task}: return"
        _write(canvas, (8, 24 + _LINE_HEIGHT * index), f"{name} {value:.1f}", BLACK, 13, width - 16)
    return np.concatenate([frame, np.array(canvas)])


def _canvas(width: int, height: int, fill: RGB) -> PillowImage:
    from PIL import Image

    return Image.new("RGB", (width, height), fill)


def _write(canvas: PillowImage, place: tuple[int, int], text: str, colour: RGB, size: int, room: int) -> None:
    """Write a line of text, shortened to `room` pixels."""
    from PIL import ImageDraw

    while _font(size).getlength(text) > room and len(text) > 1:
        text = text[:-2] + "…"
    ImageDraw.Draw(canvas).text(place, text, fill=colour, font=_font(size))


@cache
def _font(size: int) -> Any:
    """Return the font of matplotlib, which has every character that is used here."""
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)


def _rgb(colour: Colour) -> RGB:
    red, green, blue = (round(255 * part) for part in colour)
    return red, green, blue
