"""Order, colour and marker of each method in all figures and tables.

Any two colours are distinguishable under simulated protanopia, deuteranopia and tritanopia (see the tests). Markers
differ too, for print in grey.
"""

from __future__ import annotations

import colorsys
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cic.core.paper_scores import TITLES

COLOURS = {
    "ddpg": "#0D0D0D",
    "cic": "#EE2B20",
    "icm": "#B49BF5",
    "disagreement": "#2F7BF2",
    "rnd": "#1A12C4",
    "apt": "#F5A11A",
    "proto": "#7A2400",
    "smm": "#57C2A0",
    "diayn": "#843A8C",
    "aps": "#0F0A63",
    "fixed": "#7C7C7C",
}
REST = ("#A51E4B", "#4B1E2D", "#B478C3", "#4B5AC3", "#690087")
"""Colours of other methods."""

_MARKERS = dict(zip(COLOURS, "soDv^<>PXdp", strict=True))
_REST_MARKERS = "*hH8p"


@dataclass(frozen=True)
class Style:
    colour: str
    marker: str
    dash: str = "-"
    hollow: bool = False
    """Open marker, used for numbers of the paper."""

    @property
    def line(self) -> dict[str, Any]:
        return {"color": self.colour, "linestyle": self.dash}

    @property
    def point(self) -> dict[str, Any]:
        face = "white" if self.hollow else self.colour
        return {"marker": self.marker, "markeredgecolor": self.colour, "markerfacecolor": face}


def place(method: str) -> tuple[int, str]:
    """Sort key: methods in the paper's order, then other methods by name."""
    known = list(TITLES)
    return (known.index(method) if method in TITLES else len(known), method)


def styles(labels: Iterable[tuple[str, str]]) -> dict[str, Style]:
    """Return a style for each label of (label, method) pairs. Several rows of one method get tones of its colour."""
    rows: dict[str, list[str]] = {}
    for label, method in labels:
        rows.setdefault(method, []).append(label)
    indices = _rest(method for method in rows if method not in COLOURS)
    found: dict[str, Style] = {}
    for method, names in rows.items():
        if method in COLOURS:
            colour, marker = COLOURS[method], _MARKERS[method]
        else:
            colour, marker = REST[indices[method] % len(REST)], _REST_MARKERS[indices[method] % len(_REST_MARKERS)]
        for index, name in enumerate(names):
            dash = ("-", "--", ":", "-.")[index % 4]
            found[name] = Style(tones(colour, len(names))[index], marker, dash)
    return found


def tones(colour: str, count: int) -> list[str]:
    """Return the colour itself for the first row and shades for the others, the most different shade first."""
    shades = [shade(colour, index, count) for index in range(count)]
    dark = sum(int(colour[i : i + 2], 16) for i in (1, 3, 5)) < 3 * 128
    return [colour, *(reversed(shades) if dark else shades)][:count]


def shade(colour: str, index: int, count: int) -> str:
    """Return the `index`-th of `count` shades, dark to light; the colour itself if `count` is 1."""
    if count == 1:
        return colour
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    low, high = min(lightness, 0.28), max(lightness, 0.68)
    channels = colorsys.hls_to_rgb(hue, low + (high - low) * index / (count - 1), saturation)
    return "#" + "".join(f"{round(255 * channel):02X}" for channel in channels)


def _rest(methods: Iterable[str]) -> dict[str, int]:
    """Assign each name the same index in every report, unless two names in one report would share it."""
    taken: dict[str, int] = {}
    for method in sorted(methods):
        index = zlib.crc32(method.encode()) % len(REST)
        while index in taken.values() and len(taken) < len(REST):
            index = (index + 1) % len(REST)
        taken[method] = index
    return taken


RC_PARAMS: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "axes.titlesize": 8,  # not bold: a second font would double the time to write a PDF
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.edgecolor": "#444444",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "text.parse_math": False,  # the name of a method may contain $
    "pdf.fonttype": 42,  # embed fonts as TrueType: editable, accepted by conferences
    "svg.fonttype": "none",
    "svg.hashsalt": "cic",
    "savefig.dpi": 300,
}
"""Settings of matplotlib."""
