"""Prompts: the skill whose behaviour maximises a reward that the user states as a function of observations.

A reward that is linear in the quantities of a Steer agent is a skill at once. Methods that infer skills from rewards
use their own inference. Otherwise the skills of the library are scored by the states that they lead to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from cic.core.errors import UserError
from cic.core.formula_reward import FormulaReward
from cic.core.named_quantities import Quantities
from cic.core.types import Array
from cic.learning.objectives import Objective
from cic.learning.objectives.steer import Steer

Floats = npt.NDArray[np.float64]
Reward = Callable[[Array], Floats]
"""Observations (N, obs) → rewards (N,)."""
SAME = 1e-4
"""The relative error below which a reward counts as linear."""


Prompt: TypeAlias = "str | Reward | Array"
"""A formula of named quantities, a function of observations, or an observation to reach."""


class SkillPaths(NamedTuple):
    """What the skills of an agent do."""

    skills: Array  # (P, dim)
    paths: Array  # (P, T, obs)

    @property
    def states(self) -> Array:
        """(P · T, obs)"""
        return self.paths.reshape(-1, self.paths.shape[2])


def no_paths(objective: Objective) -> SkillPaths:
    return SkillPaths(
        np.zeros((0, objective.skills.dim), np.float32), np.zeros((0, 1, objective.spaces.obs), np.float32)
    )


class Answer(NamedTuple):
    """The skill that answers a prompt."""

    skill: Array  # (dim,)
    how: str
    """linear, inferred or library."""
    candidates: Array  # (K, dim)
    """Other skills that may be tried, best first; empty if the skill is known to be the right one."""


def answer(objective: Objective, prompt: Prompt, quantities: Quantities, library: SkillPaths) -> Answer:
    """Find the skill for a prompt.

    Args:
        objective: The method.
        prompt: The prompt.
        quantities: The quantities that a formula may name.
        library: What the skills of the agent do; may be empty.
    """
    space = objective.skills
    if space.kind == "none":
        raise UserError("this agent has no skills, so it cannot follow a prompt: choose an agent with skills")
    none = np.zeros((0, space.dim), np.float32)
    if not isinstance(prompt, str) and not callable(prompt) and (skill := _goal_skill(objective, prompt, library)):
        return Answer(skill[0], "inferred", none)
    reward = reward_of(prompt, quantities, objective, library.states)
    if isinstance(objective, Steer) and (weights := linear_weights(objective, reward, library.states)) is not None:
        return Answer(weights, "linear", none)
    if not len(library.skills):
        raise UserError(
            "this agent has no library of skills to search: ask for a reward that is linear in its quantities, or "
            "repeat the pre-training with `library` above 0"
        )
    rewards = rewards_at(reward, library.states)
    ranked = ranked_skills(library.skills, rewards.reshape(len(library.paths), -1))
    inferred = _inferred(objective, library.states, rewards)
    if inferred is None:
        return Answer(ranked[0], "library", ranked)
    if isinstance(objective, Steer):
        return Answer(ranked[0], "library", np.concatenate([ranked[:1], inferred[None], ranked[1:]]))
    return Answer(inferred, "inferred", none)


def reward_of(prompt: Prompt, quantities: Quantities, objective: Objective, states: Array) -> Reward:
    """The reward that a prompt means."""
    if isinstance(prompt, str):
        return FormulaReward(prompt, quantities, objective.spaces.obs)
    return prompt if callable(prompt) else goal_reward(prompt, states, objective)


def rewards_at(reward: Reward, states: Array) -> Floats:
    """The rewards (N,) of states (N, obs), checked."""
    try:
        found = np.asarray(reward(states), np.float64)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"the reward function failed with {type(error).__name__}: {error}") from error
    if found.shape != (len(states),):
        raise UserError(
            f"the reward function must return one number per observation, shape ({len(states)},), not {found.shape}"
        )
    if not np.isfinite(found).all():
        raise UserError("the reward function returned a value that is not finite")
    return found


def linear_weights(objective: Steer, reward: Reward, states: Array) -> Array | None:
    """The skill of a reward that is linear in the quantities (in their units); None if it is not.

    The states of the library may lie in a subspace, so random observations are added.
    """
    rng = np.random.default_rng(0)
    spread = states.std(axis=0) + 0.1 if len(states) else np.ones(objective.spaces.obs)
    centre = states.mean(axis=0) if len(states) else np.zeros(objective.spaces.obs)
    random = centre + spread * rng.standard_normal((256, objective.spaces.obs))
    obs = np.concatenate([states[:: max(len(states) // 512, 1)], random]).astype(np.float32)
    try:
        rewards = rewards_at(reward, obs)
    except UserError:
        if not len(states):
            raise
        return None  # not defined at all random observations, and so not linear
    if np.ptp(rewards) <= 1e-9 * np.abs(rewards).max():
        raise UserError("the prompted reward is the same everywhere: name a quantity in it")
    with torch.no_grad():
        values = objective.values(torch.from_numpy(obs).to(objective.centre.device)).double().cpu().numpy()
    inputs = np.column_stack([values, np.ones(len(values))])
    weights, *_ = np.linalg.lstsq(inputs, rewards, rcond=None)
    if np.abs(inputs @ weights - rewards).max() > SAME * np.ptp(rewards):
        return None
    signal = weights[:-1] * objective.spread.double().cpu().numpy()
    return np.asarray(signal / np.linalg.norm(signal), np.float32)


def ranked_skills(skills: Array, rewards: Floats) -> Array:
    """The distinct skills, best first, by the mean reward over the second half of their paths (P, T)."""
    scores = rewards[:, rewards.shape[1] // 2 :].mean(axis=1)
    distinct, place, counts = np.unique(skills, axis=0, return_inverse=True, return_counts=True)
    means = np.bincount(place.reshape(-1), scores, len(counts)) / counts
    return np.asarray(distinct[np.argsort(-means, kind="stable")], np.float32)


def _inferred(objective: Objective, states: Array, rewards: Floats) -> Array | None:
    if type(objective).infer_skill is Objective.infer_skill or np.ptp(rewards) == 0:
        return None
    device = _device(objective)
    reward = torch.from_numpy(rewards.astype(np.float32))[:, None].to(device)
    skill = objective.infer_skill(torch.from_numpy(np.ascontiguousarray(states)).to(device), reward)
    if skill is None or not bool(torch.isfinite(skill).all()):
        return None
    return np.asarray(skill.detach().cpu().numpy(), np.float32)


def _goal_skill(objective: Objective, goal: Any, library: SkillPaths) -> list[Array]:
    """The skill that leads to a goal from the initial states of the library, for methods that infer it; else none."""
    if type(objective).goal_skill is Objective.goal_skill or not len(library.paths):
        return []
    starts = torch.from_numpy(np.ascontiguousarray(library.paths[:, 0])).to(_device(objective))
    wanted = torch.from_numpy(_checked_goal(goal, objective)).to(starts).expand(len(starts), -1)
    with torch.no_grad():
        skills = objective.goal_skill(starts, wanted)
        found = None if skills is None else objective.skills.towards(skills.mean(dim=0, keepdim=True))
    return [] if found is None else [np.asarray(found[0].cpu().numpy(), np.float32)]


def _device(objective: Objective) -> torch.device:
    return next((parameter.device for parameter in objective.parameters()), torch.device("cpu"))


def _checked_goal(goal: Any, objective: Objective) -> Array:
    wanted = np.asarray(goal, np.float32).reshape(-1)
    if wanted.shape != (objective.spaces.obs,) or not np.isfinite(wanted).all():
        raise UserError(f"a goal must be {objective.spaces.obs} finite numbers, the size of an observation")
    return wanted


def goal_reward(goal: Any, states: Array, objective: Objective) -> Reward:
    """Minus the squared distance from a goal: of the signals of a Steer agent, else of the standardised entries."""
    wanted = _checked_goal(goal, objective)
    if isinstance(objective, Steer):
        return lambda obs: -np.square(_signals(objective, obs) - _signals(objective, wanted[None])).sum(axis=1)
    scale = states.std(axis=0, dtype=np.float64) + 1e-6 if len(states) else np.ones(len(wanted))
    return lambda obs: -np.square((obs.astype(np.float64) - wanted) / scale).mean(axis=1)


def _signals(objective: Steer, obs: Array) -> Floats:
    with torch.no_grad():
        found = objective.signals(torch.from_numpy(np.ascontiguousarray(obs, np.float32)).to(objective.centre.device))
    return np.asarray(found.double().cpu().numpy())
