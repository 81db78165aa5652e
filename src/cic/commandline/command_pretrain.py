"""`cic pretrain`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cic.commandline.flags import Flag, flags_of
from cic.commandline.parser import CommandParser
from cic.commandline.settings_table import add_settings
from cic.commandline.shared import TrainingArguments, check_trust, print_result, resume_run, take
from cic.core.errors import UserError

FROM = Flag(
    "from",
    "path",
    default=None,
    optional=True,
    help="Start a new run from the weights of this pre-training, with its settings except those that are given.",
)


def add_arguments(parser: CommandParser, words: Sequence[str]) -> None:
    add_settings(parser, "pretrain", words, [*flags_of(TrainingArguments), FROM])
    parser.epilog = (
        "A scale sets the default of every setting; flags override it. "
        "`cic pretrain --objective NAME --help` shows the options of another objective."
    )


def run(given: dict[str, Any]) -> int:
    if "resume" in given:
        return resume_run(given, "pretrain")
    check_trust(given)
    from cic.api import pretrain
    from cic.training.settings import override, pretrain_defaults

    own = take(given, "out", "quiet", "seeds")
    if start := given.pop("from", None):
        return _run_from(start, own, given)
    basis = take(given, "domain", "objective", "scale", "preset", "learner", "pixels")
    config = override(pretrain_defaults(**basis), given)
    if seeds := own.pop("seeds", None):
        from cic.commandline.command_sweep import execute
        from cic.sweep.command import SweepOptions
        from cic.sweep.grid import of_config, parse_seeds

        options = SweepOptions(out=str(own.get("out") or "runs"), quiet=own.get("quiet", False))
        return execute(of_config(config, parse_seeds(seeds)), options)
    return print_result(pretrain(config, **own))


def _run_from(start: Path, own: dict[str, Any], given: dict[str, Any]) -> int:
    from cic.api import pretrain
    from cic.runs.folder import Run

    if given.get("objective") == Run(start).config.get("objective"):
        del given["objective"]  # it selects the flags
    fixed = [f"--{name}" for name in ("objective", "scale", "preset", "learner", "seeds") if name in own | given]
    if fixed:
        raise UserError(f"a run that starts --from another keeps its objective, scale and learner: drop {fixed[0]}")
    return print_result(pretrain(start=start, **own, **given))
