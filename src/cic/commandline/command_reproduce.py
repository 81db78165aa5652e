"""`cic reproduce`."""

from __future__ import annotations

from dataclasses import dataclass, field

from cic.commandline.flags import POSITIONAL
from cic.commandline.text_tables import print_table
from cic.core.errors import UserError
from cic.experiments.reproduce_options import ReproduceOptions


@dataclass(frozen=True)
class ReproduceArguments:
    options: ReproduceOptions
    name: str | None = field(default=None, metadata=POSITIONAL)
    """An experiment, or all; --list shows the experiments."""


def run(given: ReproduceArguments) -> int:
    if given.options.list:
        from cic.experiments.listing import table

        print_table(*table())
        return 0
    if given.name is None:
        raise UserError("give the name of an experiment, or all; `cic reproduce --list` shows the experiments")
    from cic.experiments.reproduction import reproduce

    return reproduce(given.name, given.options)
