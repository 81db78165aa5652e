"""`cic runs`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from cic.commandline.flags import POSITIONAL
from cic.commandline.text_tables import print_table
from cic.core.command_text import command_text
from cic.envs import domains
from cic.runs import records
from cic.runs.records import RunRecord


@dataclass(frozen=True)
class RunsArguments:
    folder: Path = field(default=Path("runs"), metadata=POSITIONAL)
    """A run folder or a folder of run folders."""
    commands: bool = True
    """Print each run's next command below the table."""


def run(given: RunsArguments) -> None:
    found, problems = records.read([given.folder])
    for problem in problems:
        print(f"cic: note: {problem}", file=sys.stderr)
    if found:
        rows = [[run.name, run.title, run.task or run.domain, run.state, _steps(run)] for run in found]
        print_table(["run", "method", "where", "state", "steps"], rows)
    following = [line for run in found if (line := next_command(run))]
    if given.commands and following:
        print("\nnext:")
        for line in following:
            print(f"  {line}")


def _steps(run: RunRecord) -> str:
    return f"{run.step:,}" if run.step >= run.steps else f"{run.step:,} of {run.steps:,}"


def next_command(run: RunRecord) -> str:
    """Return the command that continues from the run; empty while another process writes it."""
    path, imports = str(run.path), run.imports
    if run.state in ("interrupted", "failed", "dead", "unknown"):
        return command_text(run.kind, resume=path, imports=imports)
    if run.state == "finished" and run.kind == "pretrain":
        task = "TASK" if run.domain in domains() else run.domain
        return command_text("finetune", path, task=task, imports=imports)
    if run.state == "finished" and run.kind == "offline" and not run.scored:
        return command_text("evaluate", path, infer=10_000, imports=imports)
    return command_text("evaluate", path, imports=imports) if run.state == "finished" else ""
