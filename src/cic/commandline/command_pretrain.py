"""`cic pretrain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cic.commandline.flags import flags_of
from cic.commandline.parser import CommandParser
from cic.commandline.settings_table import add_settings
from cic.commandline.shared import TrainingArguments, check_trust, print_result, resume_run, take


def add_arguments(parser: CommandParser, words: Sequence[str]) -> None:
    add_settings(parser, "pretrain", words, flags_of(TrainingArguments))
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
    basis = take(given, "domain", "objective", "scale", "preset", "learner", "pixels")
    config = override(pretrain_defaults(**basis), given)
    if seeds := own.pop("seeds", None):
        from cic.commandline.command_sweep import execute
        from cic.sweep.command import SweepOptions
        from cic.sweep.grid import of_config, parse_seeds

        options = SweepOptions(out=str(own.get("out") or "runs"), quiet=own.get("quiet", False))
        return execute(of_config(config, parse_seeds(seeds)), options)
    return print_result(pretrain(config, **own))
