"""`cic offline`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cic.commandline.flags import POSITIONAL, flags_of
from cic.commandline.parser import CommandParser
from cic.commandline.settings_table import add_offline_settings
from cic.commandline.shared import check_trust, print_result, resume_run, take
from cic.core.errors import UserError


@dataclass(frozen=True)
class OfflineArguments:
    data: str = field(default="", metadata=POSITIONAL)
    """A run folder, a folder of ExORL episodes (*.npz), minari:ID, or several of these joined with +."""
    out: Path | None = None
    """Folder of the run. Without it, a new folder under runs/ is created."""
    resume: Path | None = None
    """Resume this run instead. A larger --steps makes it longer; of the other settings only --device, --quiet and
    --trust can be given."""
    quiet: bool = False
    """Show no progress."""
    trust: bool = False
    """With --resume: allow the environment in config.json to import a Python module."""


def add_arguments(parser: CommandParser, words: Sequence[str]) -> None:
    add_offline_settings(parser, words, flags_of(OfflineArguments))
    parser.epilog = (
        "A preset sets the default of every setting; flags override it. `cic offline --learner NAME --help` shows the "
        "settings of another learner, `--objective NAME` those of a method with skills for every reward."
    )


def run(given: dict[str, Any]) -> int:
    if "resume" in given:
        return resume_run(given, "offline")
    check_trust(given)
    from cic.api import offline
    from cic.training.offline_settings import offline_defaults
    from cic.training.settings import override

    own = take(given, "out", "quiet")
    if not given.get("data"):
        raise UserError("`cic offline` needs DATA: a run folder, a folder of ExORL episodes, or minari:ID")
    start = offline_defaults(**take(given, "data", "task", "learner", "objective", "preset"))
    parts = (start, start.learning, start.options)
    known = {one.name for part in parts for one in dataclasses.fields(part)}
    if others := [name for name in given if name not in known]:
        raise UserError(f"unknown flag --{others[0].replace('_', '-')} of the learner {start.learner}: drop it")
    return print_result(offline(override(start, given), **own))
