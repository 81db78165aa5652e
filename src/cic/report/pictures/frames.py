"""Composition of frames: titles, borders, grids, filmstrips and running returns."""

from __future__ import annotations

import textwrap
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
BLACK, GREY, WHITE = (25, 25, 25), (110, 110, 110), (255, 255, 255)
_BORDER, _GAP, _LINE_HEIGHT = 3, 6, 18
_RETURN_COLOURS = ((238, 43, 32), (47, 123, 242), (26, 160, 90), (245, 161, 26), (132, 58, 140))


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
    return _paste(canvas, [frame], _BORDER, _BORDER + _LINE_HEIGHT)


def grid(tiles: Sequence[Frame], columns: int) -> Frame:
    """Arrange tiles in rows on white."""
    height, width = tiles[0].shape[:2]
    rows = -(-len(tiles) // columns)
    canvas = np.full((rows * (height + _GAP) + _GAP, columns * (width + _GAP) + _GAP, 3), 255, np.uint8)
    for index, one in enumerate(tiles):
        top, left = _GAP + index // columns * (height + _GAP), _GAP + index % columns * (width + _GAP)
        canvas[top : top + height, left : left + width] = one
    return canvas


def strip_row(frames: Sequence[Frame], title: str, colour: Colour) -> Frame:
    """Return one row of a filmstrip: a title with a bar in its colour, then the frames."""
    height, width = frames[0].shape[:2]
    label = _label_width(width)
    canvas = _canvas(label + len(frames) * (width + 2), height, WHITE)
    canvas.paste(_rgb(colour), (0, 0, 6, height))
    for index, line in enumerate(_wrap(title, 13, label - 16)[:6]):
        _write(canvas, (12, 6 + _LINE_HEIGHT * index), line, BLACK, 13, label - 14)
    return _paste(canvas, frames, label, 0)


def sheet(rows: Sequence[Frame], heading: str, times: Sequence[str], width: int) -> Frame:
    """Return a filmstrip: a heading, the time of each column, and the rows."""
    full, label = rows[0].shape[1], _label_width(width)
    lines = _wrap(heading, 14, full - 16)
    top = 8 + 20 * len(lines) + _LINE_HEIGHT
    canvas = _canvas(full, top, WHITE)
    for index, line in enumerate(lines):
        _write(canvas, (8, 6 + 20 * index), line, BLACK, 14, full - 12)
    for index, time in enumerate(times):
        _write(canvas, (label + index * (width + 2) + 4, top - _LINE_HEIGHT), time, GREY, 12, width)
    gap = np.full((4, full, 3), 255, np.uint8)
    return np.concatenate([np.array(canvas), *(part for row in rows for part in (row, gap))])


def with_returns(
    frame: Frame, heading: str, time: str, returns: Mapping[str, npt.NDArray[np.float64]], now: int, last: int
) -> Frame:
    """Add the time and, for each task, the running return and its curve below the frame."""
    width = frame.shape[1]
    height = max(84, 30 + _LINE_HEIGHT * len(returns))
    canvas = _canvas(width, height, WHITE)
    _write(canvas, (8, 5), heading, BLACK, 13, width - 80)
    _write(canvas, (width - 66, 5), time, BLACK, 13, 64)
    top = max(float(np.max(np.abs(curve[: last + 1]), initial=0.0)) for curve in returns.values()) or 1.0
    box = (width // 2, 28, width - 10, height - 8)
    for index, (task, curve) in enumerate(returns.items()):
        colour = _RETURN_COLOURS[index % len(_RETURN_COLOURS)]
        name = "return" if task == "reward" else f"{task}: return"
        place = (8, 24 + _LINE_HEIGHT * index)
        _write(canvas, place, f"{name} {curve[now]:.1f}", colour, 13, width // 2 - 16)
        _draw_curve(canvas, box, curve[: now + 1] / top, max(last, 1), colour)
    return np.concatenate([frame, np.array(canvas)])


def save(frame: Frame, out: Path) -> None:
    from PIL import Image

    Image.fromarray(frame).save(out, optimize=True)


def _draw_curve(
    canvas: PillowImage, box: tuple[int, int, int, int], values: npt.NDArray[np.float64], last: int, colour: RGB
) -> None:
    """Draw values up to the current step; zero is at the bottom unless a value is negative."""
    from PIL import ImageDraw

    left, top, right, bottom = box
    zero = bottom if values.min() >= 0 else (top + bottom) // 2
    points = [(left + (right - left) * i / last, zero - (zero - top) * float(v)) for i, v in enumerate(values)]
    draw = ImageDraw.Draw(canvas)
    draw.line([(left, zero), (right, zero)], fill=(200, 200, 200), width=1)
    draw.line(points if len(points) > 1 else points * 2, fill=colour, width=2)


def _canvas(width: int, height: int, fill: RGB) -> PillowImage:
    from PIL import Image

    return Image.new("RGB", (width, height), fill)


def _paste(canvas: PillowImage, frames: Sequence[Frame], left: int, top: int) -> Frame:
    """Put frames side by side on the canvas, two pixels apart."""
    picture = np.array(canvas)
    height, width = frames[0].shape[:2]
    for index, frame in enumerate(frames):
        start = left + index * (width + 2)
        picture[top : top + height, start : start + width] = frame
    return picture


def _write(canvas: PillowImage, place: tuple[int, int], text: str, colour: RGB, size: int, room: int) -> None:
    """Write a line of text, shortened to `room` pixels."""
    from PIL import ImageDraw

    while _font(size).getlength(text) > room and len(text) > 1:
        text = text[:-2] + "…"
    ImageDraw.Draw(canvas).text(place, text, fill=colour, font=_font(size))


def _wrap(text: str, size: int, room: int) -> list[str]:
    """Wrap text to about `room` pixels."""
    letter = _font(size).getlength(text) / max(len(text), 1)
    return textwrap.wrap(text, max(1, int(0.92 * room / letter)), break_long_words=False)


@cache
def _font(size: int) -> Any:
    """Return the font of matplotlib, which has every character that is used here."""
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)


def _label_width(width: int) -> int:
    return max(96, min(150, width))


def _rgb(colour: Colour) -> RGB:
    red, green, blue = (round(255 * part) for part in colour)
    return red, green, blue
