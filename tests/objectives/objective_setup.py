"""What the tests of objectives share: small batches, small objectives and one update as the agent does it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from helpers import needed_extras
from torch import Tensor

from cic.core.types import Batch, Spaces
from cic.learning.objectives import Objective, SkillSpace, get_objective

ACTION = 3
HIDDEN = 32


def build(name: str, obs: int = 24, seed: int = 0, **options: Any) -> Objective:
    """As the agent builds it, with weights drawn from `seed`."""
    cls = get_objective(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return cls(Spaces(obs, ACTION), HIDDEN, cls.Options(**options))


def make_batch(skills: SkillSpace, obs: int = 24, size: int = 32, seed: int = 0, spaces: Spaces | None = None) -> Batch:
    rng = np.random.default_rng(seed)
    spaces = spaces or Spaces(obs, ACTION)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))

    here = normal(size, obs)
    return Batch(
        obs=here,
        action=torch.from_numpy(spaces.random_actions(size, rng))
        if spaces.choices
        else normal(size, spaces.action).tanh(),
        reward=normal(size, 1),
        discount=torch.full((size, 1), 0.97),
        next_obs=here + 0.3 * normal(size, obs),
        skill=torch.from_numpy(skills.sample(size, rng)),
        extras=needed_extras(here, seed),
    )


class Representation:
    """The objective's part of an agent's update."""

    def __init__(self, objective: Objective, lr: float = 1e-3, seed: int = 0) -> None:
        self.objective = objective
        self.generator = torch.Generator().manual_seed(seed)
        groups = objective.parameter_groups(lr)
        self.optimiser = torch.optim.Adam(groups) if groups else None

    def prepare(self, batch: Batch) -> Batch:
        return self.objective.prepare(batch, self.generator)

    def step(self, prepared: Batch) -> float:
        if self.optimiser is None:
            return 0.0
        loss, _ = self.objective.loss(prepared)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        self.objective.after_step()
        return float(loss.detach())

    def update(self, batch: Batch) -> Tensor:
        prepared = self.prepare(batch)
        self.step(prepared)
        return self.objective.reward(prepared)


def prepared(objective: Objective, batch: Batch, seed: int = 0) -> Batch:
    return Representation(objective, seed=seed).prepare(batch)
