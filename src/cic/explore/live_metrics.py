"""Live metrics of a step: the intrinsic reward and the confidence of the discriminator.

Both are defined on batches: a particle reward needs neighbours, a contrastive loss needs other skills. So each step is
evaluated in a batch with steps of the skills on the map.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cic.core.types import Array, Batch
from cic.explore.loaded_agent import LoadedAgent
from cic.learning.objectives import Objective

REFERENCE_STEPS = 255
"""Other steps in the batch: together with the live step, the batch size of the scale `laptop`."""


@dataclass(frozen=True)
class ReferencePaths:
    """Paths of many skills, one row per skill."""

    skills: Array  # (K, dim)
    observations: Array  # (K, T + 1, obs)
    actions: Array  # (K, T, action)


class LiveMetrics:
    """Evaluates steps with a copy of the objective, whose running statistics stay unchanged."""

    def __init__(self, agent: LoadedAgent, reference: ReferencePaths, seed: int = 0) -> None:
        self._agent = copy.deepcopy(agent.agent).cpu().eval()
        self._objective = self._agent.objective  # FB's refers to the critic of the agent
        self._kept = {name: value.clone() for name, value in self._objective.named_buffers()}
        self._needs, self._nstep = self._objective.needs, agent.nstep
        rng = np.random.default_rng(seed)
        count, steps = reference.actions.shape[:2]
        rows = np.arange(REFERENCE_STEPS) % count  # one step of each skill, then a second one
        ends = rng.integers(min(self._nstep, steps), steps + 1, REFERENCE_STEPS)
        others = [_Step.of(reference, skill, end, self._nstep) for skill, end in zip(rows, ends, strict=True)]
        self._others, self._other_skills = self._batch(others), self._batch(others[:count])
        space = self._objective.skills
        self._chance = 1 / (space.active or space.dim if space.kind == "onehot" else len(self._other_skills.obs) + 1)

    def compute(self, path: Sequence[Array], actions: Sequence[Array], skill: Array) -> dict[str, float]:
        """Return `intrinsic`, `confidence` and `chance` of the last step of `path`, as far as the method defines them.

        `path` starts with the observation at which the skill was chosen.
        """
        begin = min(self._nstep, len(actions))
        live = self._batch([_Step(path[-1 - begin], actions[-begin], path[-1], skill, path)])
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
        reward = self._objective.reward(batch)[0]
        if len(reward) == 1:
            return float(reward[0])
        return float(reward @ batch.skill[0]) if len(reward) == batch.skill.shape[1] else None  # successor features

    def _batch(self, rows: list[_Step]) -> Batch:
        """Return steps as a training batch, with the extras that the method needs."""
        obs, action, next_obs, skill = (
            torch.from_numpy(np.stack([getattr(row, name) for row in rows]))
            for name in ("obs", "action", "next_obs", "skill")
        )
        zeros = torch.zeros(len(rows), 1)
        batch = Batch(obs, action, zeros, zeros + 0.99, next_obs, skill)
        if self._needs.skill_start:
            first = torch.from_numpy(np.stack([row.path[0] for row in rows]))
            batch = batch.with_extras(first_obs=first, skill_end=zeros + 1)  # as if the skill ended here
        if self._needs.path:
            picked = [np.linspace(0, len(row.path) - 1, self._needs.path).round().astype(int) for row in rows]
            paths = [np.stack([row.path[i] for i in chosen]) for row, chosen in zip(rows, picked, strict=True)]
            batch = batch.with_extras(path=torch.from_numpy(np.stack(paths)))
        if self._needs.goals:
            batch = batch.with_extras(goal=next_obs, random_goal=next_obs.flip(0))
        return self._agent.encode(batch, detached=True)


def _together(live: Batch, others: Batch) -> Batch:
    """Return one batch with the live step first."""
    fields = {
        name: torch.cat([getattr(live, name), getattr(others, name)]) for name in Batch._fields if name != "extras"
    }
    return Batch(**fields, extras={name: torch.cat([live.extras[name], rest]) for name, rest in others.extras.items()})


@dataclass(frozen=True)
class _Step:
    obs: Array
    action: Array
    next_obs: Array
    skill: Array
    path: Sequence[Array]
    """From the choice of the skill to `next_obs`."""

    @classmethod
    def of(cls, reference: ReferencePaths, skill: int, end: int, nstep: int) -> _Step:
        seen, begin = reference.observations[skill], max(end - nstep, 0)
        return cls(seen[begin], reference.actions[skill, begin], seen[end], reference.skills[skill], seen[: end + 1])
