"""What the method itself thinks of a step: its intrinsic reward, and how sure its discriminator is of the skill.

Both are defined on batches: a particle reward asks for neighbours, a contrast for other skills. So each step is judged
in a batch of steps of many other skills, those of the map.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cic.core.types import Array, Batch
from cic.explore.loaded_agent import Subject
from cic.learning.objectives import Objective

ROWS = 255
"""Steps beside the one that is judged: with it, a batch of the scale `laptop`."""


@dataclass(frozen=True)
class Reference:
    """What many skills did: their paths, a row per skill."""

    skills: Array  # (K, dim)
    observations: Array  # (K, T + 1, obs)
    actions: Array  # (K, T, action)


class Judge:
    """Judges the latest steps of one copy. It works on a copy of the objective, whose statistics stay as they are."""

    def __init__(self, subject: Subject, reference: Reference, seed: int = 0) -> None:
        self._objective = copy.deepcopy(subject.agent.objective).cpu().eval()
        self._kept = {name: value.clone() for name, value in self._objective.named_buffers()}
        self._needs, self._nstep = self._objective.needs, subject.nstep
        rng = np.random.default_rng(seed)
        count, steps = reference.actions.shape[:2]
        rows = np.arange(ROWS) % count  # one step of each skill before the second of any
        ends = rng.integers(min(self._nstep, steps), steps + 1, ROWS)
        others = [_Row.of(reference, skill, end, self._nstep) for skill, end in zip(rows, ends, strict=True)]
        self._others, self._other_skills = self._batch(others), self._batch(others[:count])
        space = self._objective.skills
        self._chance = 1 / (space.active or space.dim if space.kind == "onehot" else len(self._other_skills.obs) + 1)

    def judge(self, path: Sequence[Array], actions: Sequence[Array], skill: Array) -> dict[str, float]:
        """Of the step that led to the last observation of `path`, under a skill that began with its first: the
        `intrinsic` reward, and the discriminator's `confidence` beside `chance`; what the method has of them."""
        begin = min(self._nstep, len(actions))
        live = self._batch([_Row(path[-1 - begin], actions[-begin], path[-1], skill, path)])
        with torch.no_grad():
            reward = self._reward(_together(live, self._others))
            confidence = self._objective.confidence(_together(live, self._other_skills))
        for name, value in self._objective.named_buffers():
            value.copy_(self._kept[name])
        found = {} if reward is None else {"intrinsic": reward}
        if confidence is not None:
            found |= {"confidence": float(confidence[0]), "chance": self._chance}
        return found

    def _reward(self, batch: Batch) -> float | None:
        if type(self._objective).reward is Objective.reward:
            return None
        batch = self._objective.prepare(batch, torch.Generator().manual_seed(0))
        paid = self._objective.reward(batch)[0]
        if len(paid) == 1:
            return float(paid[0])
        return float(paid @ batch.skill[0]) if len(paid) == batch.skill.shape[1] else None  # features of a critic

    def _batch(self, rows: list[_Row]) -> Batch:
        """Steps as an update would see them, with what the method needs beyond them."""
        obs, action, next_obs, skill = (
            torch.from_numpy(np.stack([getattr(row, name) for row in rows]))
            for name in ("obs", "action", "next_obs", "skill")
        )
        zeros = torch.zeros(len(rows), 1)
        batch = Batch(obs, action, zeros, zeros + 0.99, next_obs, skill)
        if self._needs.skill_start:
            first = torch.from_numpy(np.stack([row.path[0] for row in rows]))
            batch = batch.with_extras(first_obs=first, skill_end=zeros + 1)  # paid as if the skill ended here
        if self._needs.path:
            picked = [np.linspace(0, len(row.path) - 1, self._needs.path).round().astype(int) for row in rows]
            paths = [np.stack([row.path[i] for i in chosen]) for row, chosen in zip(rows, picked, strict=True)]
            batch = batch.with_extras(path=torch.from_numpy(np.stack(paths)))
        if self._needs.goals:
            batch = batch.with_extras(goal=next_obs, random_goal=next_obs.flip(0))
        return batch


def _together(live: Batch, others: Batch) -> Batch:
    """One batch, the live step first."""
    fields = {
        name: torch.cat([getattr(live, name), getattr(others, name)]) for name in Batch._fields if name != "extras"
    }
    return Batch(**fields, extras={name: torch.cat([live.extras[name], rest]) for name, rest in others.extras.items()})


@dataclass(frozen=True)
class _Row:
    obs: Array
    action: Array
    next_obs: Array
    skill: Array
    path: Sequence[Array]
    """From where the skill began to `next_obs`."""

    @classmethod
    def of(cls, reference: Reference, skill: int, end: int, nstep: int) -> _Row:
        seen, begin = reference.observations[skill], max(end - nstep, 0)
        return cls(seen[begin], reference.actions[skill, begin], seen[end], reference.skills[skill], seen[: end + 1])
