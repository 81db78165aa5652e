"""`cic evaluate`."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from cic.commandline.shared import AgentArguments
from cic.commandline.text_tables import print_table
from cic.core.errors import UserError


@dataclass(frozen=True)
class EvaluateArguments(AgentArguments):
    episodes: int = 10
    """Number of parallel episodes, with the mean action."""
    skill: tuple[float, ...] | None = None
    """Use this skill: a number per dimension, one number for all dimensions, or the index of a one-hot skill. By
    default the run's own skill, or random skills (zero-shot)."""
    seed: int = 0
    """Seed of the initial states and the random skills."""
    infer: int | None = None
    """Infer the skill of each task from the rewards of this many states, without finetuning."""
    goals: int | None = None
    """Steer to this many random goal positions instead, and report how many are reached."""
    json: bool = False
    """Print JSON instead of a table."""


def run(given: EvaluateArguments) -> None:
    if given.episodes < 1:
        raise UserError(f"episodes must be at least 1, not {given.episodes}")
    if given.infer is not None and given.infer < 1:
        raise UserError(f"infer must be at least 1, not {given.infer}")
    if sum(value is not None for value in (given.skill, given.infer, given.goals)) > 1:
        raise UserError("--skill, --infer and --goals exclude each other: give one of them")
    if given.goals is not None:
        _evaluate_goals(given, given.goals)
    else:
        _evaluate_returns(given)


def _evaluate_returns(given: EvaluateArguments) -> None:
    import numpy as np

    from cic.api import evaluate, infer

    names = ("episodes", "seed", "at", "trust")
    shared: dict[str, Any] = {name: getattr(given, name) for name in names}
    if given.infer is not None:
        found = infer(given.run, given.infer, **shared)
    else:
        found = evaluate(given.run, skill=given.skill, **shared)
    if given.json:
        print(json.dumps(dataclasses.asdict(found)))
        return
    rows = [
        [task, *(f"{statistic(returns):.1f}" for statistic in (np.mean, np.std, np.min, np.max))]
        for task, returns in found.returns.items()
    ]
    print_table(["task", "mean", "std", "min", "max"], rows)


def _evaluate_goals(given: EvaluateArguments, count: int) -> None:
    from cic.api import reach

    found = reach(given.run, count, seed=given.seed, at=given.at, trust=given.trust)
    if given.json:
        print(json.dumps({name: getattr(found, name).tolist() for name in ("goals", "nearest", "last")}))
        return
    distances = (found.nearest, found.last)
    reached = [f"{float((distance <= found.radius).mean()):.2f}" for distance in distances]
    means = [f"{distance.mean():.2f}" for distance in distances]
    header = ["goals", "within", "reached", "at the end", "nearest", "last"]
    print_table(header, [[str(len(found.goals)), f"{found.radius:g}", *reached, *means]])
