"""Colours that people can tell apart, and that stay."""

from __future__ import annotations

import numpy as np
import pytest

from cic.core.paper_scores import TITLES
from cic.report.figures.style import COLOURS, REST, place, shade, styles, tones

# Machado, Oliveira and Fernandes 2009, full severity, on linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def linear(colour: str) -> np.ndarray:
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    cones = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]]
    cones += [[0.0883024619, 0.2817188376, 0.6299787005]]
    lab = [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099]]
    lab += [[0.0259040371, 0.7827717662, -0.808675766]]
    return 100 * np.array(lab) @ np.cbrt(np.array(cones) @ np.clip(rgb, 0, 1))


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize(("names", "least"), [(tuple(COLOURS.values()), 9.0), ((*COLOURS.values(), *REST), 8.0)])
def test_any_two_colours_stay_apart(sight: str, names: tuple[str, ...], least: float) -> None:
    """In OKLab, where 2 (of 100) is just noticeable."""
    seen = [oklab(np.array(SIGHT[sight]) @ linear(colour)) for colour in names]
    for index, a in enumerate(seen):
        for other, b in enumerate(seen[:index]):
            assert np.linalg.norm(a - b) > least, (names[index], names[other])


@pytest.mark.parametrize("colour", [*COLOURS.values(), *REST])
def test_every_colour_stands_out_from_white(colour: str) -> None:
    luminance = linear(colour) @ np.array([0.2126, 0.7152, 0.0722])
    assert 1.05 / (luminance + 0.05) > 2


def test_every_method_of_the_paper_has_its_own_marker_and_colour() -> None:
    found = styles([(TITLES[method], method) for method in COLOURS])
    assert len({style.marker for style in found.values()}) == len(COLOURS)
    assert {label: style.colour for label, style in found.items()} == {TITLES[m]: c for m, c in COLOURS.items()}


def test_a_colour_does_not_depend_on_the_company() -> None:
    alone = styles([("CIC", "cic")])["CIC"]
    assert styles([("DDPG", "ddpg"), ("CIC", "cic"), ("mine", "mine")])["CIC"] == alone
    assert styles([("mine", "mine")])["mine"] == styles([("CIC", "cic"), ("mine", "mine")])["mine"]


def test_unknown_methods_do_not_share_a_colour_while_there_are_any() -> None:
    names = [f"method{index}" for index in range(len(REST))]
    found = styles([(name, name) for name in names])
    assert len({style.colour for style in found.values()}) == len(REST)
    assert not {style.colour for style in found.values()} & set(COLOURS.values())
    more = [(str(index), str(index)) for index in range(30)]
    assert len(styles(more)) == 30  # beyond that they must


def test_order_is_the_papers() -> None:
    assert sorted(["zzz", "aps", "cic", "abc", "ddpg"], key=place) == ["ddpg", "cic", "aps", "abc", "zzz"]


@pytest.mark.parametrize("colour", [*COLOURS.values(), *REST])
@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_a_second_row_leaves_the_first_its_colour(colour: str, count: int) -> None:
    found = tones(colour, count)
    assert found[0] == colour
    assert len(set(found)) == count


def test_variants_are_shades() -> None:
    shades = [shade("#EE2B20", index, 5) for index in range(5)]
    assert len(set(shades)) == 5
    assert shade("#EE2B20", 0, 1) == "#EE2B20"
