"""Metrics that show whether the parts of an agent work: computed when a line is logged, read by `training.validity`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cic.core.types import Batch, Metrics
from cic.learning.objectives import Objective
from cic.learning.particles import effective_rank

if TYPE_CHECKING:
    from cic.learning.agent import Agent

BOUND = 1 - 1e-5
"""Absolute actions above it are saturated: the slope of the tanh there is below 2e-5."""


@torch.no_grad()
def state_of_policy(agent: Agent, batch: Batch, *, skills: bool) -> Metrics:
    """Saturation of the mean action, the share of its variance that is due to the skill, the size of observations."""
    obs = agent.encoder(batch.obs)
    size = obs.square().mean(dim=0).sqrt()
    used = size[size > 0]
    action = agent.learner.mean_action(agent.objective.policy_input(obs, batch.skill))
    metrics = {
        "obs/largest": size.max(),
        "obs/smallest": used.min() if len(used) else size.max(),
    }
    if not agent.spaces.choices:
        metrics["action/saturation"] = (action.abs() > BOUND).float().mean()
    if skills and batch.skill.shape[1]:
        other = agent.learner.mean_action(agent.objective.policy_input(obs, batch.skill.roll(1, dims=0)))
        metrics["action/skill_share"] = share_of_skill(action, other)
    return metrics


def share_of_skill(action: Tensor, other: Tensor) -> Tensor:
    """Share of the variance of actions that is due to the skill; `other` are actions of the same states, other skills.

    E‖a(s, z) − a(s, z′)‖² / 2 is the mean variance over skills at a state. It is divided by the variance over states
    and skills. 0 if actions do not vary at all.
    """
    own = (action - other).square().sum(dim=1).mean() / 2
    total = action.var(dim=0, correction=0).sum()
    return own / total.clamp(min=1e-12)


@torch.no_grad()
def state_of_representation(objective: Objective, batch: Batch) -> Metrics:
    """The effective rank of the embedding, and how much the discriminator recognises of the skill."""
    metrics: Metrics = {}
    embedded = objective.embed(batch.next_obs)
    if embedded is not None:
        metrics["embedding/effective_rank"] = effective_rank(embedded)
    confidence = objective.confidence(batch)
    if confidence is not None:
        skills = objective.skills
        choices = skills.active or skills.dim if skills.kind == "onehot" else len(confidence)
        entropy = math.log(max(choices, 2))
        metrics["skill/information"] = 1 + confidence.clamp(min=1e-12).log().mean() / entropy
    return metrics
