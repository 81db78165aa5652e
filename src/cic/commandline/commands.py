"""The commands and their parsers. This module imports a command only when it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, get_type_hints

from cic.commandline.flags import build, flags_of
from cic.commandline.parser import CommandParser

COMMANDS = {
    "pretrain": "discover skills in a domain, without rewards",
    "finetune": "adapt a pre-trained run to a task, or learn the task from --scratch",
    "offline": "learn a task, or skills for every reward, from stored data",
    "evaluate": "measure the returns of a run's agent",
    "doctor": "check whether a run learned anything, in comparison with random actions",
    "prompt": "find the skill that maximises a reward that you type",
    "skills": "show what each skill does: a table, figures and films",
    "film": "film an episode of a run's agent",
    "explore": "explore an agent and its skills live in the browser",
    "sweep": "execute many runs on this machine's cores or on a Ray cluster",
    "runs": "list runs with their state, progress and next command",
    "export": "export a run's data (ExORL, Minari) or its policy (ONNX, torch)",
    "report": "make tables, figures and one HTML page from run folders",
    "compare": "compare two groups of runs",
    "reproduce": "reproduce a table or figure of the paper",
    "envs": "list the tasks with their dimensions and expert scores",
    "check-env": "check an environment before a long run",
    "objectives": "list the objectives and their options",
    "completion": "print the completion script for bash, zsh or fish",
}

_OVERVIEW = """usage: cic COMMAND [settings]

Unsupervised skill discovery: CIC, its baselines and the URLB benchmark.

{commands}

Every command accepts --import FILE.py (or MODULE), which is imported first and
may register objectives and environments of your own.

examples:
  cic pretrain --domain walker                # CIC at laptop scale, into runs/
  cic pretrain --domain quadruped --objective rnd --scale paper --out runs/rnd
  cic pretrain --resume runs/rnd              # resumes bit-exactly
  cic finetune runs/rnd --task run            # at the scale of the pre-training
  cic finetune --scratch --task walker-walk   # the same without pre-training
  cic offline runs/rnd --task run             # from the stored steps alone
  cic pretrain --domain walker --seeds 0-4    # five runs, as many at once as cores
  cic sweep --objectives cic,apt --domains walker --seeds 0-4 --tasks walker
  cic prompt walker "height - abs(speed)"     # the skill for a reward that you type
  cic explore                                 # a bundled walker with sliders, in the browser
  cic reproduce gridworld --scale smoke       # a figure of the paper, in seconds
  cic COMMAND --help                          # the settings of a command"""


def overview() -> str:
    """Return the help of `cic` itself."""
    return _OVERVIEW.format(commands="\n".join(f"  {name:<12}{about}" for name, about in COMMANDS.items()))


def command_parser(name: str, words: Sequence[str]) -> CommandParser:
    """Make the parser of a command for the words after it."""
    parser = CommandParser(name, COMMANDS[name], words)
    module = _module(name)
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser, words)
    else:
        parser.add_flags("settings", flags_of(get_type_hints(module.run)["given"]))
    parser.add_general()
    return parser


def run_command(name: str, given: dict[str, Any]) -> int:
    """Run a command with the values of its flags; return the exit code."""
    module = _module(name)
    if hasattr(module, "add_arguments"):
        return module.run(given) or 0
    return module.run(build(get_type_hints(module.run)["given"], given)) or 0


def _module(name: str) -> ModuleType:
    return import_module(f"cic.commandline.command_{name.replace('-', '_')}")
