"""Skills from the controls of the page: sliders, typed text, interpolation of two pinned skills."""

from __future__ import annotations

import re

import numpy as np

from cic.core.errors import UserError
from cic.core.types import Array
from cic.learning.objectives import SkillSpace


def constant(space: SkillSpace, value: float) -> Array:
    """Return a skill from one number: every entry of a box or cube, or the index of a one-hot skill."""
    if space.kind == "onehot":
        corner: Array = np.eye(space.dim, dtype=np.float32)[min(max(round(value), 0), space.dim - 1)]
        return corner
    return np.full(space.dim, value, np.float32)


def with_entry(space: SkillSpace, skill: Array, place: int, value: float) -> Array:
    """Change one entry; on a sphere, rescale the others so that the length stays the same."""
    changed = skill.copy()
    changed[place] = value
    if space.kind != "sphere":
        return changed
    value = float(np.clip(value, -space.radius, space.radius))
    rest = np.delete(skill, place)
    length = float(np.linalg.norm(rest))
    left = np.sqrt(max(space.radius**2 - value**2, 0.0))
    rest = rest * (left / length) if length > 0 else np.full(space.dim - 1, left / np.sqrt(max(space.dim - 1, 1)))
    return np.insert(rest, place, value).astype(np.float32)


def entry_range(space: SkillSpace) -> tuple[float, float]:
    """Return the range of an entry; for a normal skill, ± 3 standard deviations."""
    return {"box": (0.0, 1.0), "cube": (-1.0, 1.0), "normal": (-3.0, 3.0)}.get(
        space.kind, (-space.radius, space.radius)
    )


def between(space: SkillSpace, first: Array, second: Array, share: float) -> Array:
    """Interpolate linearly, along the great circle of a sphere, or to the nearer one-hot skill."""
    if space.kind == "onehot":
        return first if share < 0.5 else second
    if space.kind != "sphere":
        return np.asarray((1 - share) * first + share * second, np.float32)
    angle = float(np.arccos(np.clip(first @ second / space.radius**2, -1.0, 1.0)))
    if np.sin(angle) < 1e-3:  # equal or opposite skills: no unique great circle
        mixed = (1 - share) * first + share * second + 1e-6
        return np.asarray(space.radius * mixed / np.linalg.norm(mixed), np.float32)
    mixed = (np.sin((1 - share) * angle) * first + np.sin(share * angle) * second) / np.sin(angle)
    return np.asarray(mixed, np.float32)


def typed(space: SkillSpace, text: str) -> Array:
    """Parse a skill: the numbers that the setting `skill` accepts, separated by blanks or commas."""
    words = [word for word in re.split(r"[\s,;\[\]()]+", text) if word]
    try:
        numbers = [float(word) for word in words[: space.dim + 1]]
    except ValueError:
        raise UserError("enter numbers, or #7 for a point of the map") from None
    if not numbers:
        raise UserError("enter a skill")
    try:
        return space.check(numbers)
    except UserError as error:
        raise UserError(str(error).replace("`skill`", "this")) from None
