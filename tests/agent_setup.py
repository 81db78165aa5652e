"""Small agents and batches that tests share."""

from __future__ import annotations

from typing import Any

import torch
from helpers import random_batch
from safetensors.torch import load, save

from cic.core.types import Batch, Spaces
from cic.learning.agent import Agent, build_agent
from cic.learning.learners import get_learner
from cic.learning.objectives import get_objective

OBS, ACTION, SKILL, BATCH, EDGE = 3, 2, 2, 4, 1 - 1e-6
TINY: dict[str, Any] = {"hidden": 5, "batch": BATCH, "lr": 1e-2, "tau": 0.1}


def make_agent(
    objective: str = "cic",
    learner: str = "ddpg",
    *,
    seed: int = 0,
    config: dict[str, Any] | None = None,
    **options: Any,
) -> Agent:
    if objective == "cic":
        options = {"skill_dim": SKILL, "knn": 3, "temperature": 2.0} | options
    return build_agent(
        Spaces(OBS, ACTION),
        objective,
        get_objective(objective).Options(**options),
        learner,
        get_learner(learner).Config(**(TINY | (config or {}))),
        seed=seed,
    )


def shake(agent: Agent, scale: float = 0.4, seed: int = 9) -> Agent:
    """Biases and gains off their initial values, and targets that differ from what they follow."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in agent.parameters():
            value += scale * torch.randn(value.shape, generator=noise)
    return agent


def batches(agent: Agent, count: int, seed: int = 0) -> list[Batch]:
    return [random_batch(BATCH, OBS, ACTION, agent.objective.skills.dim, seed + i) for i in range(count)]


def same(first: Agent, second: Agent) -> bool:
    """Every weight, buffer and moment, and the generator."""
    states = [agent.state_dict() | agent.optimiser_state() for agent in (first, second)]
    assert states[0].keys() == states[1].keys()
    return all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def restored(agent: Agent, fresh: Agent) -> Agent:
    """`fresh` with the agent's state, through the file format of checkpoints."""
    fresh.load_state_dict(load(save({name: value.contiguous() for name, value in agent.state_dict().items()})))
    fresh.restore_optimisers(load(save(agent.optimiser_state())))
    return fresh
