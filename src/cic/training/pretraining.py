"""Pre-training: random skills without task rewards, then a library with trajectories of skills."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cic.training.evaluation import CoverageTracker, skill_cells
from cic.training.library import from_replay, recorded
from cic.training.script import Call, Script, Segment
from cic.training.settings import PretrainConfig
from cic.training.skill_variance import diagnose

if TYPE_CHECKING:
    from cic.training.loop import Loop

    Pretraining = Loop[PretrainConfig[Any, Any]]

LIBRARY_SEED = 1  # of the random numbers that draw the library's skills


def pretrain(loop: Pretraining) -> Script:
    """Uniform actions first, then training with the intrinsic reward, then the library."""
    config = loop.config
    if loop.inherited is not None:
        loop.agent.load_state_dict(loop.inherited.weights)
    states = loop.env.states()
    width = loop.agent.spaces.obs if states is None else states.shape[1]
    loop.coverage = CoverageTracker(loop.env.coverage, width, config.num_envs, from_states=states is not None)
    images = bool(loop.agent.spaces.images)
    has_library = bool(config.library_skills) and loop.agent.objective.skills.kind != "none" and not images
    end = config.ending if has_library else config.steps

    yield from _with_milestones(loop, Segment("warmup", until=min(config.warmup, end), act="uniform", train="none"), 0)
    yield from _with_milestones(loop, Segment("train", until=end), config.warmup)
    if has_library:
        yield from collect_library(loop, end)
    else:
        yield Segment("last updates", until_update=loop.updates_due(loop.total_steps))
    yield Call("log", loop.log)

    _keep_library(loop, has_library)
    return {"domain": config.domain, "objective": config.objective} | _measured(loop)


def collect_library(loop: Pretraining, start: int) -> Script:
    """Run each skill for several episodes, without noise or updates, in all environments in parallel."""
    config = loop.config
    num_envs = config.num_envs
    rounds = -(-config.library_skills // num_envs)
    rng = np.random.default_rng([config.seed, LIBRARY_SEED])
    skills = loop.agent.objective.skills.sample(rounds * num_envs, rng).reshape(rounds, num_envs, -1)
    until = start
    count = rounds * num_envs * config.library_starts * config.library_steps
    announcement = f"the last {count:,} steps record skills for the library, without updates"
    yield Call("announcement", lambda: loop.reporter.say(announcement))
    for skill in np.repeat(skills, config.library_starts, axis=0):
        until += config.library_steps * num_envs
        yield Segment("library", until=until, act="mean", skill=skill, train="none", reset=True, ending=True)
    yield Call("end of the last episodes", loop.restart_episodes)


def _with_milestones(loop: Pretraining, segment: Segment, start: int) -> Script:
    """The segment, interrupted at each milestone after `start`."""
    assert segment.until is not None
    for step in _milestones(loop.config, start, segment.until):
        yield replace(segment, until=step)
        yield Call("milestone", lambda step=step: _keep_milestone(loop, step))  # type: ignore[misc]
    yield segment


def _milestones(config: PretrainConfig[Any, Any], after: int, until: int) -> Iterator[int]:
    return (step for step in sorted(set(config.milestones)) if after < step <= until)


def _keep_milestone(loop: Pretraining, step: int) -> None:
    """Save the weights, and log how much of the behaviour the skill explains, in a separate environment."""
    config = loop.config
    loop.run.save_milestone(step, loop.agent.state_dict())
    space = loop.agent.objective.skills
    if space.kind != "none" and config.diagnosed and not loop.agent.spaces.images:
        skills = space.sample(config.diagnosed, np.random.default_rng(config.seed))
        found = diagnose(
            loop.agent, config.domain, skills, starts=3, seed=config.seed, limit=100, timeout=config.env_timeout
        )
        loop.write_metrics(found.metrics())


def _keep_library(loop: Pretraining, collected: bool) -> None:
    """Store the skill library. Without recorded skills, it contains the last skills of the training."""
    space, config = loop.agent.objective.skills, loop.config
    if space.kind == "none" or loop.agent.spaces.images:
        return
    if collected:
        found = recorded(loop.replay, config.library_skills, config.library_starts, config.library_steps)
    else:
        found = from_replay(loop.replay, 128, space.every or 200)
    if found is not None:
        loop.run.save_library(found.arrays())


def _measured(loop: Pretraining) -> dict[str, Any]:
    assert loop.coverage is not None
    measured: dict[str, Any] = dict(loop.coverage.update(loop.replay, loop.step))
    cells = skill_cells(loop.agent, loop.config.environment, seed=loop.config.seed)
    if cells is not None:
        measured |= {"coverage/skill_cells": float(cells)}
        loop.write_metrics({"coverage/skill_cells": float(cells)})
    return measured | {"coverage/of": loop.coverage.of}
