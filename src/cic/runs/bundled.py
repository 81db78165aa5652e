"""The agents that are part of the package: run folders with what loading and finetuning need.

    cic/data/agents/walker/   config.json, result.json, made.json (command, seed, date, score), milestones/, library/

Their name is accepted wherever a run folder is expected. `examples/make_agents.py` creates them. Their matrices are
stored as float16, and nothing is ever written to these folders.
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from cic.core.errors import UserError

FOLDER = Path(str(files("cic").joinpath("data", "agents")))


def bundled_agents() -> list[str]:
    """The names of the bundled agents."""
    return sorted(path.name for path in FOLDER.glob("*") if (path / "config.json").is_file())


def locate(run: Path | str) -> Path:
    """The folder of a run. An existing path takes precedence over a bundled agent."""
    path = Path(run)
    return FOLDER / path if not os.path.lexists(path) and str(path) in bundled_agents() else path


def is_bundled(folder: Path) -> bool:
    """Whether this is the folder of a bundled agent."""
    return FOLDER in folder.absolute().parents


def refuse_bundled(folder: Path) -> None:
    """Raise a `UserError` for the folder of a bundled agent. Call it before writing to a run folder."""
    if is_bundled(folder):
        name = folder.absolute().relative_to(FOLDER).parts[0]
        raise UserError(f"{name} is part of the cic package and cannot be changed: choose another folder with `out`")
