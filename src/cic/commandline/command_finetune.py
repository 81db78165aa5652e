"""`cic finetune`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cic.commandline.flags import POSITIONAL, flags_of
from cic.commandline.parser import CommandParser
from cic.commandline.settings_table import add_settings
from cic.commandline.shared import TrainingArguments, check_trust, print_result, resume_run, take
from cic.core.errors import UserError


@dataclass(frozen=True)
class FinetuneArguments(TrainingArguments):
    runs: tuple[Path, ...] = field(default=(), metadata=POSITIONAL)
    """Folder of the pre-training. Several folders make a sweep."""
    scratch: bool = False
    """Learn the task without pre-training."""
    at: int | None = None
    """Use the weights of this step's milestone or checkpoint."""


def add_arguments(parser: CommandParser, words: Sequence[str]) -> None:
    add_settings(parser, "finetune", words, flags_of(FinetuneArguments))
    parser.epilog = "Without --scale and --learner, those of the pre-training are used."


def run(given: dict[str, Any]) -> int:
    if "resume" in given:
        return resume_run(given, "finetune")
    check_trust(given)
    from cic.api import finetune, starting_point, whole_task
    from cic.training.settings import override

    own = take(given, "out", "quiet", "at")
    chosen = take(given, "runs", "scratch", "scale", "learner", "seeds")
    runs = chosen.get("runs", ())
    first = runs[0] if runs else None
    if chosen.get("scratch", False) == bool(runs):
        raise UserError("give either the folder of a pre-training or --scratch")
    start = starting_point(first, given["task"], chosen.get("scale"), chosen.get("learner"), given.get("pixels", False))
    _check_learner(given, start)
    given["task"] = whole_task(first, given["task"])
    config = override(start, given)
    seeds = chosen.get("seeds")
    if runs and (len(runs) > 1 or seeds is not None or _is_domain(config.task)):
        return _sweep(runs, given, seeds, own)
    return print_result(finetune(first, config, **own))


def _check_learner(given: dict[str, Any], start: Any) -> None:
    """Refuse the settings of another learner."""
    parts = (start, start.learning, start.selection, start.encoding)
    known = {field.name for part in parts for field in dataclasses.fields(part)}
    for name in given:
        if name not in known:
            raise UserError(f"unknown flag --{name.replace('_', '-')} of the learner {start.learner}: drop it")


def _is_domain(task: str) -> bool:
    """Whether the task is the name of a domain, which means all its tasks."""
    from cic import envs

    domain, name = envs.split_name(task)
    return name is None and domain in envs.domains()


def _sweep(runs: Sequence[Path], settings: dict[str, Any], seeds: str | None, own: dict[str, Any]) -> int:
    from cic.commandline.command_sweep import execute
    from cic.sweep.command import SweepOptions
    from cic.sweep.grid import finetunings, parse_seeds

    task, seed = settings.pop("task"), settings.pop("seed", None)
    chosen = parse_seeds(seeds) if seeds else None if seed is None else (seed,)
    plan = finetunings(runs, task, chosen, settings, own.get("at"))
    return execute(plan, SweepOptions(out=str(own.get("out") or "runs"), quiet=own.get("quiet", False)))
