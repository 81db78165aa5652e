"""The commands: what each is for and where it lives. Light, because `cic --help` reads it."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    about: str
    home: str
    """`module:function` below `cic.commandline`; the function takes the words after the command, and may return an
    exit code."""


COMMANDS = {
    "pretrain": Command("discover skills in a domain, without rewards", "training:pretrain"),
    "finetune": Command("adapt a pre-trained run to a task (or --scratch)", "training:finetune"),
    "evaluate": Command("returns of a run's agent", "looking:evaluate"),
    "skills": Command("what each skill of a run does: a table, pictures, filmstrips, films", "showing:skills"),
    "film": Command("an episode of a run's agent as a film, with its running return", "showing:film"),
    "explore": Command("an agent live in the browser: watch it, play with its skills", "exploring:explore"),
    "sweep": Command("many runs: a plan, on this machine's cores or on a Ray cluster", "sweeping:sweep"),
    "runs": Command("the runs in a folder: their state, progress and next command", "runs:runs"),
    "export": Command("a run's data (ExORL, Minari) or its policy (ONNX, torch)", "exporting:export"),
    "report": Command("tables, figures and one HTML page from run folders", "reporting:report"),
    "compare": Command("two groups of runs: difference and probability of improvement", "reporting:compare"),
    "reproduce": Command("every table and figure of the paper, one command each", "reproducing:reproduce"),
    "envs": Command("domains and tasks, their dimensions and expert scores", "looking:environments"),
    "objectives": Command("the methods and their options", "looking:objectives"),
    "completion": Command("completion for bash, zsh or fish", "completion:completion"),
}

EXAMPLES = """examples:
  cic pretrain --domain walker                   # CIC at laptop scale, into runs/
  cic pretrain --domain quadruped --objective rnd --scale paper --out runs/rnd
  cic pretrain --resume runs/rnd                 # goes on to the bit where it stopped
  cic finetune runs/rnd --task run               # at the scale of the pre-training
  cic finetune --scratch --task walker-walk      # the same budget from nothing
  cic pretrain --domain walker --seeds 0-4       # five runs, as many at once as cores
  cic sweep --objectives cic,apt --domains walker --seeds 0-4 --tasks walker
  cic explore                                    # a quadruped that ships with cic, in the browser
  cic reproduce gridworld --scale smoke          # one of the paper's figures, in seconds
  cic COMMAND --help                             # settings and their meaning"""


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.about}" for name, command in COMMANDS.items()]
    head = "usage: cic COMMAND [settings]\n\nSkills without rewards, and how to use them.\n"
    more = (
        "\nEvery command takes --import MODULE (or FILE.py), which is imported first and may\n"
        "register objectives and environments of your own; CIC_IMPORT does the same.\n"
    )
    return "\n".join([head, *lines, more, EXAMPLES])
