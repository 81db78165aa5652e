"""`cic check-env`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cic.commandline.flags import POSITIONAL
from cic.commandline.text_tables import print_table


@dataclass(frozen=True)
class CheckEnvArguments:
    name: str = field(metadata=POSITIONAL)
    """The environment: your own name (with --import), gymnasium:ID, or a built-in task."""
    steps: int = 2_000
    """Number of steps with random actions."""
    seed: int = 0
    """Seed of the environment and the actions."""


def run(given: CheckEnvArguments) -> int:
    from cic.training.env_check import check_env

    found = check_env(given.name, steps=given.steps, seed=given.seed)
    print_table(["check", "result"], [[finding.check, finding.level] for finding in found.findings])
    print()
    for finding in found.findings:
        print(f"{finding.check}: {_with_flags(finding.text)}")
    return 0 if found.ok else 1


def _with_flags(text: str) -> str:
    """`` `prior_data=0` `` → `--prior-data 0`."""
    return re.sub(r"`(\w+)=([^`]*)`", lambda found: f"--{found[1].replace('_', '-')} {found[2]}", text)
