"""`cic evaluate`, `envs`, `objectives`: what is there and what it does."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cic.commandline import text_tables
from cic.commandline.arguments import arguments
from cic.core.errors import UserError


@dataclass(frozen=True)
class EvaluateArgs:
    run: Path
    """Folder of a pre-training or a finetuning."""
    episodes: int = 10
    """Episodes, side by side, under the mean action."""
    skill: tuple[float, ...] | None = None
    """Use this skill: a number per dimension, one number for all of them, or the place of a one-hot skill. By default
    the run's own, or random ones (zero-shot)."""
    seed: int = 0
    """Of the initial states and the random skills."""
    at: int | None = None
    """Use the weights of this step's milestone or checkpoint."""
    infer: int | None = None
    """Label so many states with each task's rewards and infer its skill from them, without finetuning."""
    goals: int | None = None
    """Steer to so many random places of the plane instead, and say how many are reached."""
    json: bool = False
    """Print JSON instead of a table."""
    trust: bool = False
    """Make the run's environment even if that imports a module that its config.json names."""


def evaluate(args: list[str]) -> None:
    given = arguments(EvaluateArgs, args, "evaluate", positional=["run"])
    if given is None:
        return
    import numpy as np

    from cic.api import evaluate, infer

    if given.episodes < 1:
        raise UserError(f"episodes must be at least 1, not {given.episodes}")
    if (given.skill is not None) + (given.infer is not None) + (given.goals is not None) > 1:
        raise UserError("--skill, --infer and --goals exclude each other")
    if given.goals is not None:
        _reach(given)
        return
    shared: dict[str, Any] = {"episodes": given.episodes, "seed": given.seed, "at": given.at}
    skill = None if given.skill is None else np.array(given.skill, np.float32)
    if given.infer is not None:
        found = infer(given.run, given.infer, **shared)
    else:
        found = evaluate(given.run, skill=skill, trust=given.trust, **shared)
    if given.json:
        print(json.dumps(dataclasses.asdict(found)))
        return
    rows = [
        [task, f"{np.mean(r):.1f}", f"{np.std(r):.1f}", f"{np.min(r):.1f}", f"{np.max(r):.1f}"]
        for task, r in found.returns.items()
    ]
    text_tables.show(["task", "mean", "std", "min", "max"], rows)


def _reach(given: Any) -> None:
    from cic.api import reach

    found = reach(given.run, given.goals, seed=given.seed, at=given.at)
    if given.json:
        print(json.dumps({name: getattr(found, name).tolist() for name in ("goals", "nearest", "last")}))
        return
    hit, stayed = (float((way <= found.radius).mean()) for way in (found.nearest, found.last))
    header = ["goals", "within", "reached", "at the end", "nearest", "last"]
    means = [f"{way.mean():.2f}" for way in (found.nearest, found.last)]
    text_tables.show(header, [[str(len(found.goals)), f"{found.radius:g}", f"{hit:.2f}", f"{stayed:.2f}", *means]])


@dataclass(frozen=True)
class NoArgs:
    pass


def environments(args: list[str]) -> None:
    if arguments(NoArgs, args, "envs") is None:
        return
    from cic import envs

    rows = []
    for name, domain in envs.domains().items():
        for task in domain.tasks:
            expert = domain.experts.get(task)
            numbers = (domain.obs, domain.action, domain.episode_length)
            rows.append([f"{name}-{task}", *map(str, numbers), "-" if expert is None else f"{expert:g}"])
    text_tables.show(["task", "obs", "action", "steps", "expert"], rows)
    print("A domain alone (walker) is reward-free. gymnasium:ID takes any Gymnasium environment with Box actions.")


def objectives(args: list[str]) -> None:
    if arguments(NoArgs, args, "objectives") is None:
        return
    from cic.learning.objectives import objectives

    rows = []
    for name, cls in objectives():
        options = ", ".join(field.name for field in dataclasses.fields(cls.Options))
        rows.append([name, f"{(cls.__doc__ or '').strip().splitlines()[0]} Options: {options or 'none'}."])
    text_tables.show(["name", "what"], rows)
    print("`cic pretrain --objective NAME --help` explains the options.")
