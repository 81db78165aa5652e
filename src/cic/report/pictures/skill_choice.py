"""Which skills are shown, and their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cic.core.errors import UserError
from cic.core.types import Array
from cic.learning.objectives import SkillSpace

ColourScale = Literal["sequential", "cyclic", "categorical"]


@dataclass(frozen=True)
class ShownSkills:
    """Skills (N, dim) with a name for each."""

    skills: Array
    names: list[str]
    each: str
    """Completes the caption "Each line is …"."""
    key: str = ""
    """Label of the colour bar."""
    colours: ColourScale = "categorical"
    noun: str = "skill"
    """Prefix of the names; `start` if one policy is shown from several initial states."""
    seeds: tuple[int, ...] = ()
    """Seed of the initial state of each skill, if they differ."""

    def title(self, index: int) -> str:
        return f"{self.noun} {self.names[index]}".strip()


def choose(space: SkillSpace, count: int, how: Literal["grid", "random"], seed: int) -> ShownSkills:
    """Choose skills on a grid of values or directions, or at random; of one-hot skills, all."""
    if space.kind == "none":
        raise UserError("this agent has no skills to choose from: omit `choose` to show its policy")
    if space.kind == "onehot":
        known = space.active or space.dim
        skills: Array = np.eye(space.dim, dtype=np.float32)[:known]
        return ShownSkills(skills, [str(index) for index in range(known)], f"one of all {known} skills")
    if how == "random":
        names = [f"random {i}" for i in range(count)]
        drawn = space.sample(count, np.random.default_rng(seed))
        return ShownSkills(drawn, names, f"one of {count} random skills (seed {seed})", noun="")
    return _values(space, count) if space.kind in ("box", "cube") else _directions(space, count)


def _values(space: SkillSpace, count: int) -> ShownSkills:
    values = np.linspace(0.0 if space.kind == "box" else -1.0, 1.0, count, dtype=np.float32)
    key = f"skill (the value of all its {space.dim} dimensions)" if space.dim > 1 else "skill (its value)"
    skills = np.repeat(values[:, None], space.dim, axis=1)
    return ShownSkills(skills, [f"{value:.3g}" for value in values], "one skill", key, "sequential")


def _directions(space: SkillSpace, count: int) -> ShownSkills:
    """Choose directions around the circle in two dimensions, otherwise along the axes: +1, −1, +2, …"""
    length = space.radius if space.kind == "sphere" else float(np.sqrt(space.dim))
    if space.dim == 2:
        turns = np.arange(count) / count
        circle = length * np.stack([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)], axis=1)
        names = [f"{360 * turn:.0f}°" for turn in turns]
        return ShownSkills(circle.astype(np.float32), names, "one skill, named by its direction", colours="cyclic")
    count = min(count, 2 * space.dim)
    skills = np.zeros((count, space.dim), np.float32)
    for index in range(count):
        skills[index, index // 2] = -length if index % 2 else length
    names = [skill_name(space, skill) for skill in skills]
    return ShownSkills(skills, names, f"one skill, named by its only nonzero dimension (of {space.dim}) and its sign")


def single(space: SkillSpace, given: Array) -> ShownSkills:
    """Choose one given skill."""
    skill = space.check(np.ravel(given).tolist())
    name = skill_name(space, skill)
    return ShownSkills(skill[None], [name], f"skill {name}")


def policy(space: SkillSpace, skill: Array | None, starts: int, seed: int) -> ShownSkills:
    """Choose the agent's own policy, from several initial states."""
    own = np.zeros(space.dim, np.float32) if skill is None else skill
    name = f" with its skill {skill_name(space, own)}" if skill is not None and space.dim else ""
    names = [str(start + 1) for start in range(starts)]
    seeds = tuple(seed + start for start in range(starts))
    each = f"the policy{name} from one initial state"
    return ShownSkills(np.tile(own, (starts, 1)), names, each, noun="start", seeds=seeds)


def skill_name(space: SkillSpace, skill: Array) -> str:
    """Return a short name: an index, a value, a direction, or the first numbers of the vector."""
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
