"""The parts of a flat observation: vectors, images and stacks of images.

A Box of type uint8 with three axes is an image, (height, width, channels) or (channels, height, width). With two axes
it is a grayscale image, and with four axes a stack of images, the newest last, as in Gymnasium's
`FrameStackObservation`. Everything else is a vector. A flat observation contains the values of an image from 0 to 255.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from cic.core.errors import UserError
from cic.core.spaces import Leaf, leaves

SMALLEST = 4
"""Pixels a side of the smallest image; smaller uint8 arrays are vectors."""


class Part(NamedTuple):
    """The entries `start` to `stop` of a flat observation."""

    name: str
    start: int
    stop: int
    frames: int = 0
    """Images in a stack, 1 for a single image, 0 for a vector."""
    shape: tuple[int, ...] = ()
    """(height, width, channels) or (channels, height, width) of one image."""
    channels_last: bool = True

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def frame_size(self) -> int:
        """Bytes of one image."""
        return int(np.prod(self.shape))

    @property
    def image(self) -> tuple[int, int, int]:
        """Channels of the whole stack, height and width."""
        first, second, third = self.shape
        channels, height, width = (third, first, second) if self.channels_last else (first, second, third)
        return self.frames * channels, height, width


def parts_of(space: Any, where: str = "the observation space") -> tuple[Part, ...]:
    """Return the parts of an observation space; none if it contains only vectors and has no names."""
    found, start = [], 0
    for leaf in leaves(space, where):
        found.append(_part(leaf, start, where))
        start += leaf.size
    return tuple(found) if len(found) > 1 or any(part.frames for part in found) else ()


def _part(leaf: Leaf, start: int, where: str) -> Part:
    stop = start + leaf.size
    vector = Part(leaf.name, start, stop)
    space = leaf.space
    if not isinstance(space, Box) or len(space.shape) < 2:
        return vector
    shape = space.shape if len(space.shape) > 2 else (*space.shape, 1)
    frames, shape = (shape[0], shape[1:]) if len(shape) == 4 else (1, shape)
    if len(shape) != 3:
        return vector
    channels_last = shape[2] <= shape[0]
    sides = shape[:2] if channels_last else shape[1:]
    if min(sides) < SMALLEST:
        return vector
    if space.dtype != np.uint8:
        if len(space.shape) == 2 or min(sides) < 2 * SMALLEST:
            return vector
        named = f"{leaf.name!r} " if leaf.name else ""
        raise UserError(
            f"{where}: the observation {named}has shape {space.shape} and type {space.dtype}: an image must be uint8 "
            "with values from 0 to 255 (use gymnasium.wrappers.TransformObservation), and a vector must have one axis "
            "(gymnasium.wrappers.FlattenObservation)"
        )
    return Part(leaf.name, start, stop, frames, shape, channels_last)
