"""`cic runs`: what is in a folder, how far it is and how it goes on."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from cic.commandline import text_tables
from cic.commandline.arguments import arguments
from cic.runs import records
from cic.runs.records import RunRecord


@dataclass(frozen=True)
class RunsArgs:
    folder: Path = Path("runs")
    """A run folder or a folder of run folders."""
    commands: bool = True
    """Below the table, say how each run goes on."""


def runs(args: list[str]) -> None:
    given = arguments(RunsArgs, args, "runs", positional=["folder"])
    if given is None:
        return
    found, problems = records.read([given.folder])
    for problem in problems:
        print(f"cic: note: {problem}", file=sys.stderr)
    if found:
        rows = [
            [run.name, run.title, run.domain if run.kind == "pretrain" else run.task, *_state(run)] for run in found
        ]
        text_tables.show(["run", "method", "where", "state", "steps"], rows)
    following = [line for run in found if (line := next_command(run))]
    if given.commands and following:
        print("\nnext:")
        for line in following:
            print(f"  {line}")


def _state(run: RunRecord) -> list[str]:
    return [run.state, f"{run.step:,}" if run.step >= run.steps else f"{run.step:,} of {run.steps:,}"]


def next_command(run: RunRecord) -> str:
    """How the run goes on; nothing while it is being written, or when it is done for good."""
    path = shlex.quote(str(run.path))
    if run.state in ("interrupted", "failed", "dead", "unknown"):
        return f"cic {run.kind} --resume {path}"
    if run.state == "finished":
        return f"cic finetune {path} --task TASK" if run.kind == "pretrain" else f"cic evaluate {path}"
    return ""
