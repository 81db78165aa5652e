"""Which skills are shown, and what they are called: by their own kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cic.core.errors import UserError
from cic.core.types import Array
from cic.learning.objectives import SkillSpace

Order = Literal["ordered", "round", "apart"]
"""Values along a line, directions around a circle, or skills of which none is nearer to another."""


@dataclass(frozen=True)
class Shown:
    """What is looked at: a row of `skills` and a name for each."""

    skills: Array  # (N, dim)
    names: list[str]
    each: str
    """Completes "each line is …"."""
    key: str = ""
    """What the names mean, beside the colours."""
    order: Order = "apart"
    noun: str = "skill"
    """What stands before a name; `start` if one policy is shown from several."""
    seeds: tuple[int, ...] = ()
    """A seed of the initial state for each, if they differ."""

    def title(self, index: int) -> str:
        return f"{self.noun} {self.names[index]}".strip()


def choose(space: SkillSpace, count: int, how: Literal["grid", "random"], seed: int) -> Shown:
    """Skills to look at. A grid is of what has a name: values, places, directions."""
    if space.kind == "none":
        raise UserError("this agent has no skills to choose from: drop --choose and see its policy")
    if space.kind == "onehot":
        return _places(space)
    if how == "random":
        names = [f"random {i}" for i in range(count)]
        drawn = space.sample(count, np.random.default_rng(seed))
        return Shown(drawn, names, f"one of {count} skills drawn at random (seed {seed})", noun="")
    return _values(space, count) if space.kind in ("box", "cube") else _directions(space, count)


def _places(space: SkillSpace) -> Shown:
    known = space.active or space.dim
    skills: Array = np.eye(space.dim, dtype=np.float32)[:known]
    return Shown(skills, [str(place) for place in range(known)], f"one of the {known} skills that there are")


def _values(space: SkillSpace, count: int) -> Shown:
    values = np.linspace(0.0 if space.kind == "box" else -1.0, 1.0, count, dtype=np.float32)
    key = f"skill (the value of all its {space.dim} numbers)" if space.dim > 1 else "skill (its value)"
    skills = np.repeat(values[:, None], space.dim, axis=1)
    return Shown(skills, [f"{value:.3g}" for value in values], "one skill", key, "ordered")


def _directions(space: SkillSpace, count: int) -> Shown:
    """Around the circle in two dimensions, else along the axes: +1, −1, +2, …, at the length that skills have."""
    length = space.radius if space.kind == "sphere" else float(np.sqrt(space.dim))
    if space.dim == 2:
        turns = np.arange(count) / count
        circle = length * np.stack([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)], axis=1)
        names = [f"{360 * turn:.0f}°" for turn in turns]
        return Shown(circle.astype(np.float32), names, "one skill, named by its direction", order="round")
    count = min(count, 2 * space.dim)
    skills = np.zeros((count, space.dim), np.float32)
    for place in range(count):
        skills[place, place // 2] = -length if place % 2 else length
    names = [skill_name(space, skill) for skill in skills]
    return Shown(skills, names, f"one skill, named by the one of its {space.dim} numbers that is not 0, and its sign")


def one(space: SkillSpace, given: Array) -> Shown:
    """The skill that somebody asked for."""
    skill = space.check(np.ravel(given).tolist())
    name = skill_name(space, skill)
    return Shown(skill[None], [name], f"skill {name}")


def policy(space: SkillSpace, skill: Array | None, starts: int, seed: int) -> Shown:
    """What the agent does by itself, from several starts."""
    own = np.zeros(space.dim, np.float32) if skill is None else skill
    by = f" by its skill {skill_name(space, own)}" if skill is not None and space.dim else ""
    names = [str(start + 1) for start in range(starts)]
    seeds = tuple(seed + start for start in range(starts))
    return Shown(np.tile(own, (starts, 1)), names, f"the policy{by} from one start", noun="start", seeds=seeds)


def skill_name(space: SkillSpace, skill: Array) -> str:
    """As short as it can be said: a place, a value, a direction, else the first numbers of the vector."""
    if space.kind == "onehot":
        return str(int(np.argmax(skill)))
    if space.kind in ("box", "cube") and np.ptp(skill) == 0:
        return f"{skill[0]:.3g}"
    if space.kind in ("sphere", "normal") and space.dim == 2:
        return f"{np.degrees(np.arctan2(skill[1], skill[0])) % 360:.0f}°"
    if space.kind in ("sphere", "normal") and np.count_nonzero(skill) == 1:
        axis = int(np.argmax(np.abs(skill)))
        return f"{'−' if skill[axis] < 0 else '+'}{axis + 1}"
    first = ", ".join(f"{value:.2g}" for value in skill[:3])
    return f"[{first}, …]" if len(skill) > 3 else f"[{first}]"
