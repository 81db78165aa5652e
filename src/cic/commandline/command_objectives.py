"""`cic objectives`."""

from __future__ import annotations

import dataclasses

from cic.commandline.shared import NoArguments
from cic.commandline.text_tables import print_table


def run(given: NoArguments) -> None:
    from cic.learning.objectives import objectives

    rows = []
    for name, cls in objectives():
        options = ", ".join(field.name for field in dataclasses.fields(cls.Options))
        rows.append([name, f"{(cls.__doc__ or '').strip().splitlines()[0]} Options: {options or 'none'}."])
    print_table(["name", "description"], rows)
    print("`cic pretrain --objective NAME --help` explains the options.")
