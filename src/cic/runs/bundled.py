"""Agents that come with the package: run folders without what only a training needs.

    cic/data/agents/walker/   config.json, result.json, made.json (command, seed, date, score), milestones/, library/

Wherever a run folder is asked for, its name does as well. `examples/make_agents.py` makes them. Their matrices are kept
as float16, and nothing is ever written to them.
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from cic.core.errors import UserError

FOLDER = Path(str(files("cic").joinpath("data", "agents")))


def shipped() -> list[str]:
    """Their names."""
    return sorted(path.name for path in FOLDER.glob("*") if (path / "config.json").is_file())


def locate(run: Path | str) -> Path:
    """A run's folder: what is there under this name goes before what ships under it."""
    path = Path(run)
    return FOLDER / path if not os.path.lexists(path) and str(path) in shipped() else path


def refuse_shipped(folder: Path) -> None:
    """Before anything is written to a run folder."""
    if FOLDER in folder.absolute().parents:
        raise UserError(f"{folder.name} ships with cic and stays as it is: say with --out where to write")
