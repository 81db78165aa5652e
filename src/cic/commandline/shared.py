"""Code that several commands share: arguments, resuming a run, and printing its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cic.commandline.flags import POSITIONAL
from cic.core.command_text import command_text
from cic.core.errors import UserError
from cic.core.imports import import_names


@dataclass(frozen=True)
class NoArguments:
    """The arguments of a command that has none."""


@dataclass(frozen=True)
class AgentArguments:
    """The arguments of commands that load the agent of a run."""

    run: Path = field(metadata=POSITIONAL)
    """Folder of a pre-training or a finetuning."""
    at: int | None = None
    """Use the weights of this step's milestone or checkpoint."""
    trust: bool = False
    """Allow the environment in the run's config.json to import a Python module."""


@dataclass(frozen=True)
class TrainingArguments:
    """The arguments of commands that train, in addition to the settings of the run."""

    out: Path | None = None
    """Folder of the run. Without it, a new folder under runs/ is created."""
    resume: Path | None = None
    """Resume this run instead. A larger --steps makes it longer; of the other settings only --device, --quiet and
    --trust can be given."""
    seeds: str | None = None
    """One run per seed, such as 0-4 or 0,3,7; as many at once as there are cores."""
    quiet: bool = False
    """Show no progress."""
    trust: bool = False
    """With --resume: allow the environment in config.json to import a Python module."""


def check_trust(given: dict[str, Any]) -> None:
    if given.pop("trust", False):
        raise UserError("--trust needs --resume: an environment named on the command line is trusted already")


def take(given: dict[str, Any], *names: str) -> dict[str, Any]:
    """Remove these values from `given` and return them."""
    return {name: given.pop(name) for name in names if name in given}


def resume_run(given: dict[str, Any], kind: str) -> int:
    """Resume a run; only its length, and what does not change its results, may be given."""
    from cic.api import resume
    from cic.runs.folder import Run

    path = given["resume"]
    allowed = take(given, "steps", "device", "quiet", "trust")
    if others := [f"--{name.replace('_', '-')}" for name in given if name != "resume"]:
        raise UserError(f"a resumed run keeps its settings except --steps and --device: drop {' '.join(others)}")
    if (run := Run(path)).kind != kind:
        command = command_text(run.kind, resume=path, imports=import_names(run.about.get("imports")))
        raise UserError(f"{path} is a {run.kind} run: resume it with `{command}`")
    return print_result(resume(path, **allowed))


def print_result(finished: Any) -> int:
    """Print the numbers of a finished run; return the exit code."""
    numbers = {name: value for name, value in finished.result.items() if isinstance(value, int | float)}
    shown = [f"{name} {value:{',' if isinstance(value, int) else '.4g'}}" for name, value in numbers.items()]
    print(f"{finished.path}: {', '.join(shown)}")
    if of := finished.result.get("coverage/of"):
        print(f"coverage is of {of}")
    return 0
