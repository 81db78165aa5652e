"""`cic reproduce`."""

from __future__ import annotations

from dataclasses import dataclass

from cic.commandline import text_tables
from cic.commandline.arguments import arguments
from cic.core.errors import UserError
from cic.experiments.reproduce_options import ReproduceOptions


@dataclass(frozen=True)
class ReproduceArgs:
    options: ReproduceOptions
    name: str | None = None
    """An experiment, or all; --list shows what there is."""


def reproduce(args: list[str]) -> int:
    given = arguments(ReproduceArgs, args, "reproduce", positional=["name"])
    if given is None:
        return 0
    if given.options.list:
        from cic.experiments.listing import table

        text_tables.show(*table())
        return 0
    if given.name is None:
        raise UserError("give the name of an experiment, or all; `cic reproduce --list` shows what there is")
    from cic.experiments.reproduction import reproduce

    return reproduce(given.name, given.options)
