"""`cic prompt`."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cic.commandline.flags import POSITIONAL
from cic.commandline.shared import AgentArguments
from cic.core.errors import UserError


@dataclass(frozen=True)
class PromptArguments(AgentArguments):
    reward: str = field(default="", metadata=POSITIONAL)
    """A formula of the agent's quantities, such as "speed * upright". Without it, the quantities are listed."""
    goal: Path | None = None
    """A .npy file with an observation to reach, instead of a reward."""
    out: Path | None = None
    """Folder of the result; by default a new folder under runs/."""
    tries: int = 16
    """Number of skills that are tried in the environment if the reward is not linear in the quantities."""
    episodes: int = 5
    """Number of episodes in which the result is evaluated."""
    seed: int = 0
    """Seed of the initial states."""
    film: bool = False
    """Film the result: pictures/film.mp4 in its folder."""
    json: bool = False
    """Print JSON instead of text."""


def run(given: PromptArguments) -> None:
    if given.reward and given.goal is not None:
        raise UserError("give a reward or --goal, not both")
    if not given.reward and given.goal is None:
        _list_quantities(given)
        return
    from cic.prompting import prompt

    wanted: Any = given.reward if given.goal is None else _goal(given.goal)
    names = ("out", "tries", "episodes", "seed", "at", "trust")
    found = prompt(given.run, wanted, **{name: getattr(given, name) for name in names})
    if given.json:
        print(json.dumps(dataclasses.asdict(found) | {"path": str(found.path)}))
    else:
        print(f"{found.path}: mean reward {found.reward:.4g} per step, skill found by: {found.how}")
    if given.film:
        from cic.report.film import film

        shown = film(found.path, trust=given.trust, seed=given.seed)
        print(f"{shown.file}: {shown.steps:,} steps")


def _goal(file: Path) -> Any:
    import numpy as np

    try:
        return np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{file} is not a .npy file with an observation: {error}") from None


def _list_quantities(given: PromptArguments) -> None:
    from cic.api import load
    from cic.commandline.text_tables import print_table

    quantities = load(given.run, at=given.at).quantities
    if not quantities:
        print("this agent names no quantities: write formulas of obs[0], obs[1], …")
        return
    rows = [[one.name, one.unit or "-", _range(one), one.formula] for one in quantities]
    print_table(["quantity", "unit", "range", "formula"], rows)


def _range(quantity: Any) -> str:
    return "-" if quantity.low is None or quantity.high is None else f"{quantity.low:g} to {quantity.high:g}"
