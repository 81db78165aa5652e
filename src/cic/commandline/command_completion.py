"""`cic completion`: a script for the shell, made by shtab."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Literal

from cic.commandline import command_pretrain, settings_table
from cic.commandline.commands import COMMANDS, command_parser
from cic.commandline.flags import POSITIONAL


@dataclass(frozen=True)
class CompletionArguments:
    shell: Literal["bash", "zsh", "fish"] = field(metadata=POSITIONAL)
    """Your shell: bash, zsh or fish. Add `eval "$(cic completion bash)"` to ~/.bashrc (the same with zsh to ~/.zshrc),
    or `cic completion fish | source` to config.fish."""


def run(given: CompletionArguments) -> None:
    import shtab

    from cic.envs import domains

    table = settings_table.stored()
    parsers = {name: command_parser(name, ["--help-all"]) for name in COMMANDS}
    for name in table["objectives"]:
        command_pretrain.add_arguments(parsers["pretrain"], ["--help-all", "--objective", name])
    for name in table["learners"]:
        command_pretrain.add_arguments(parsers["pretrain"], ["--help-all", "--learner", name])
    for command in parsers.values():
        for flag in command.flags.values():
            if flag.kind == "path":
                command.actions[flag.name].complete = shtab.FILE  # type: ignore[attr-defined]
    for command in (parsers["pretrain"], parsers["finetune"]):
        command.actions["learner"].choices = list(table["learners"])
    parsers["pretrain"].actions["objective"].choices = list(table["objectives"])
    parsers["pretrain"].actions["domain"].choices = list(domains())
    parsers["finetune"].actions["task"].choices = [
        f"{name}-{task}" for name, domain in domains().items() for task in domain.tasks
    ]
    parser = argparse.ArgumentParser("cic")
    commands = parser.add_subparsers()
    for name, about in COMMANDS.items():
        commands.add_parser(name, help=about, parents=[parsers[name]], add_help=False)
    print(shtab.complete(parser, given.shell))
