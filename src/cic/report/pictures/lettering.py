"""Names, borders and numbers on pictures."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

Picture = npt.NDArray[np.uint8]
Tint = Sequence[float]
INK, SOFT, PAPER = (25, 25, 25), (110, 110, 110), (255, 255, 255)
_BORDER, _GAP, _LINE = 3, 6, 18
_LINES = ((238, 43, 32), (47, 123, 242), (26, 160, 90), (245, 161, 26), (132, 58, 140))


def tile(picture: Picture, title: str, tint: Tint) -> Picture:
    """A picture under its name, in a border of its colour."""
    height, width = picture.shape[:2]
    canvas = _canvas(width + 2 * _BORDER, height + 2 * _BORDER + _LINE, _rgb(tint))
    _write(canvas, (_BORDER + 3, 2), title, _readable(_rgb(tint)), 13, width - 4)
    return _paste(canvas, picture, _BORDER, _BORDER + _LINE)


def grid(tiles: Sequence[Picture], columns: int) -> Picture:
    """Row after row, on white."""
    height, width = tiles[0].shape[:2]
    rows = -(-len(tiles) // columns)
    canvas = np.full((rows * (height + _GAP) + _GAP, columns * (width + _GAP) + _GAP, 3), 255, np.uint8)
    for place, one in enumerate(tiles):
        top, left = _GAP + place // columns * (height + _GAP), _GAP + place % columns * (width + _GAP)
        canvas[top : top + height, left : left + width] = one
    return canvas


def strip_row(frames: Sequence[Picture], title: str, tint: Tint) -> Picture:
    """A name on its colour, then the frames side by side."""
    height, width = frames[0].shape[:2]
    label = _label_width(width)
    canvas = _canvas(label + len(frames) * (width + 2), height, PAPER)
    canvas.paste(_rgb(tint), (0, 0, 6, height))
    for number, line in enumerate(_wrapped(title, 13, label - 16)[:6]):
        _write(canvas, (12, 6 + _LINE * number), line, INK, 13, label - 14)
    picture = np.array(canvas)
    for place, frame in enumerate(frames):
        left = label + place * (width + 2)
        picture[:, left : left + width] = frame
    return picture


def sheet(rows: Sequence[Picture], heading: str, times: Sequence[str], width: int) -> Picture:
    """A filmstrip's rows under a heading and the time of each column."""
    full, label = rows[0].shape[1], _label_width(width)
    lines = _wrapped(heading, 14, full - 16)
    top = 8 + 20 * len(lines) + _LINE
    canvas = _canvas(full, top, PAPER)
    for number, line in enumerate(lines):
        _write(canvas, (8, 6 + 20 * number), line, INK, 14, full - 12)
    for place, time in enumerate(times):
        _write(canvas, (label + place * (width + 2) + 4, top - _LINE), time, SOFT, 12, width)
    gap = np.full((4, full, 3), 255, np.uint8)
    return np.concatenate([np.array(canvas), *(part for row in rows for part in (row, gap))])


def with_returns(
    picture: Picture, heading: str, time: str, paid: Mapping[str, npt.NDArray[np.float64]], now: int, last: int
) -> Picture:
    """The picture, below it the time, each task's return so far and its course over the episode."""
    width = picture.shape[1]
    below = max(84, 30 + _LINE * len(paid))
    canvas = _canvas(width, below, PAPER)
    _write(canvas, (8, 5), heading, INK, 13, width - 80)
    _write(canvas, (width - 66, 5), time, INK, 13, 64)
    top = max(float(np.max(np.abs(course[: last + 1]), initial=0.0)) for course in paid.values()) or 1.0
    chart = (width // 2, 28, width - 10, below - 8)
    for number, (task, course) in enumerate(paid.items()):
        tint = _LINES[number % len(_LINES)]
        name = "return" if task == "reward" else f"{task}: return"
        _write(canvas, (8, 24 + _LINE * number), f"{name} {course[now]:.1f}", tint, 13, width // 2 - 16)
        _course(canvas, chart, course[: now + 1] / top, max(last, 1), tint)
    return np.concatenate([picture, np.array(canvas)])


def _course(
    canvas: PillowImage,
    box: tuple[int, int, int, int],
    values: npt.NDArray[np.float64],
    last: int,
    tint: tuple[int, int, int],
) -> None:
    """A line from the left, as far as the episode has come; zero is at the bottom unless something was lost."""
    from PIL import ImageDraw

    left, top, right, bottom = box
    floor = bottom if values.min() >= 0 else (top + bottom) // 2
    points = [(left + (right - left) * i / last, floor - (floor - top) * float(v)) for i, v in enumerate(values)]
    brush = ImageDraw.Draw(canvas)
    brush.line([(left, floor), (right, floor)], fill=(200, 200, 200), width=1)
    brush.line(points if len(points) > 1 else points * 2, fill=tint, width=2)


# ---- letters ---------------------------------------------------------------------------------------------------


def _canvas(width: int, height: int, fill: tuple[int, int, int]) -> PillowImage:
    try:
        from PIL import Image
    except ImportError:
        raise UserError("pictures with letters need Pillow: pip install 'cic[video]'") from None
    return Image.new("RGB", (width, height), fill)


def _paste(canvas: PillowImage, picture: Picture, left: int, top: int) -> Picture:
    whole = np.array(canvas)
    whole[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return whole


def _write(
    canvas: PillowImage, place: tuple[int, int], text: str, ink: tuple[int, int, int], size: int, room: int
) -> None:
    from PIL import ImageDraw

    font = _font(size)
    if not _has_signs():
        text = text.replace("−", "-").replace("…", "...").replace("×", "x")
    while font.getlength(text) > room and len(text) > 1:
        text = text[:-2] + "…" if _has_signs() else text[:-1]
    ImageDraw.Draw(canvas).text(place, text, fill=ink, font=font)


def _wrapped(text: str, size: int, room: int) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if _font(size).getlength(longer) <= room or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


@cache
def _font(size: int) -> Any:
    """matplotlib's, which has every sign that is written here; else Pillow's own."""
    from PIL import ImageFont

    if _has_signs():
        return ImageFont.truetype(str(_dejavu()), size)
    return ImageFont.load_default(size=size)


@cache
def _has_signs() -> bool:
    return _dejavu() is not None


@cache
def _dejavu() -> Path | None:
    spec = importlib.util.find_spec("matplotlib")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
    return path if path.is_file() else None


def _label_width(width: int) -> int:
    return max(96, min(150, width))


def _rgb(tint: Tint) -> tuple[int, int, int]:
    red, green, blue = (round(255 * part) for part in tint)
    return red, green, blue


def _readable(background: tuple[int, int, int]) -> tuple[int, int, int]:
    """Dark letters on light colours and light ones on dark."""
    light = 0.299 * background[0] + 0.587 * background[1] + 0.114 * background[2]
    return INK if light > 140 else PAPER
