"""`cic pretrain` and `cic finetune`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cic.commandline import help, settings_table
from cic.commandline.flags import Flag, flags_of, parse, peek
from cic.commandline.sweeping import finetune_many, is_sweep, pretrain_seeds
from cic.core.errors import UserError


@dataclass(frozen=True)
class PretrainArgs:
    out: Path | None = None
    """Folder of the run; by default a new one under runs/."""
    resume: Path | None = None
    """Continue this run instead, with --steps N for longer than it was meant to; takes no other setting but --quiet,
    --device and --trust (its environment may import a module that its config.json names)."""
    seeds: str | None = None
    """0-4 or 0,3,7: a run for each, as many at once as there are cores."""
    quiet: bool = False
    """Show no progress."""


@dataclass(frozen=True)
class FinetuneArgs(PretrainArgs):
    runs: tuple[Path, ...] = ()
    """Folder of the pre-training; several make a sweep."""
    scratch: bool = False
    """Learn from nothing, without a pre-training."""
    at: int | None = None
    """Use the weights of this step's milestone or checkpoint."""


IMPORT = Flag(
    "import", "text", default=None, help="Import this module or file first: it registers objectives or environments."
)  # the entry point takes it from the words of every command; here it is for the help


def pretrain(args: list[str]) -> int:
    objective, scale = peek(args, "--objective") or "cic", peek(args, "--scale") or "laptop"
    learner = peek(args, "--learner") or settings_table.usual_learner(objective, peek(args, "--preset"))
    extra = [*flags_of(PretrainArgs), IMPORT]
    if which := help.wanted(args):
        table, preset = settings_table.table_for(objective, learner), peek(args, "--preset")
        groups = settings_table.groups(table, "pretrain", objective, learner, scale, extra, preset)
        about = "Discover skills in a domain, without rewards. A scale fills in every setting; a flag overrides it."
        print(help.page("pretrain", about, groups, which, "--objective NAME --help shows another method's options."))
        return 0
    if _resumed(args, "pretrain"):
        return 0
    from cic.api import pretrain
    from cic.training.settings import override, pretrain_defaults

    given = _given(
        settings_table.groups(settings_table.describe(), "pretrain", objective, learner, scale, extra), args, "pretrain"
    )
    seeds = given.pop("seeds", None)
    own = {name: given.pop(name) for name in ("out", "quiet") if name in given}
    decisive = [given.pop(name, None) for name in ("domain", "objective", "scale", "preset", "learner")]
    default = pretrain_defaults(decisive[0], objective, scale, decisive[3], learner)
    config = override(default, given)
    if seeds is not None:
        return pretrain_seeds(config, seeds, own.get("out"), own.get("quiet", False))
    _announce(pretrain(config, **own))
    return 0


def finetune(args: list[str]) -> int:
    extra = [*flags_of(FinetuneArgs, positional=["runs"]), IMPORT]
    which, scale, learner = help.wanted(args), peek(args, "--scale"), peek(args, "--learner")
    about = "Adapt a pre-trained run to a task, or learn the task from --scratch with the same budget."
    if which:
        table = settings_table.table_for(None, learner)
        groups = settings_table.groups(table, "finetune", "cic", learner or "ddpg", scale or "laptop", extra)
        print(help.page("finetune", about, groups, which, "Without --scale, the settings are the pre-training's."))
        return 0
    if _resumed(args, "finetune"):
        return 0
    from cic.api import finetune, starting_point, whole_task
    from cic.training.settings import override

    table = settings_table.describe()
    runs = _runs_among(args, settings_table.every_flag(table, "finetune", extra))
    run = runs[0] if runs else None
    start = starting_point(run, peek(args, "--task") or "", scale, learner)
    groups = settings_table.groups(table, "finetune", "cic", start.learner, start.scale, extra)
    given = _given(groups, args, "finetune")
    own = {name: given.pop(name) for name in ("out", "quiet", "at") if name in given}
    seeds = given.pop("seeds", None)
    given = {name: value for name, value in given.items() if name not in ("runs", "scale", "learner")}
    if given.pop("scratch", False) == (run is not None):
        raise UserError("give either the folder of a pre-training or --scratch")
    given["task"] = whole_task(run, given["task"])
    config = override(start, given)
    if is_sweep(runs, config.task, seeds):
        at, out, quiet = own.get("at"), own.get("out"), own.get("quiet", False)
        return finetune_many(runs, given, seeds, at, out, quiet)
    _announce(finetune(run, config, **own))
    return 0


def _runs_among(args: list[str], flags: list[Flag]) -> tuple[Path, ...]:
    """The runs' folders, before it is known which learner's flags there are."""
    free = [dataclasses.replace(flag, default=None) for flag in flags]  # what is missing is said later
    return tuple(parse(free, args, "finetune").get("runs") or ())


def _given(groups: Sequence[help.Group], args: list[str], command: str) -> dict[str, Any]:
    flags: list[Flag] = [flag for group in groups for flag in group.flags]
    return {name: value for name, value in parse(flags, args, command).items() if name != "resume"}


def _resumed(args: list[str], kind: str) -> bool:
    """Continue a run, if that is what was asked for; only its length may change."""
    if (path := peek(args, "--resume")) is None:
        return False
    from cic.api import resume
    from cic.runs.folder import Run

    flags = [
        Flag("resume", "path"),
        Flag("steps", "int", default=None),
        Flag("quiet", "bool", default=False),
        Flag("device", "text", default=None),
        Flag("trust", "bool", default=False),
    ]
    known = {flag.spelling for flag in flags}
    others = [arg for arg in args if arg.startswith("--") and arg.partition("=")[0] not in known]
    if others:
        raise UserError(f"a resumed run keeps its settings but --steps and --device; drop {' '.join(others)}")
    given = parse(flags, args, kind)
    if (run := Run(path)).kind != kind:
        raise UserError(f"{path} is a {run.kind} run: continue it with `cic {run.kind} --resume {path}`")
    _announce(resume(path, **{name: value for name, value in given.items() if name != "resume"}))
    return True


def _announce(finished: Any) -> None:
    numbers = {name: value for name, value in finished.result.items() if isinstance(value, int | float)}
    shown = [
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value:.4g}" for name, value in numbers.items()
    ]
    print(f"{finished.path}: {', '.join(shown)}")
    if of := finished.result.get("coverage/of"):
        print(f"coverage is of {of}")
