"""`cic completion bash|zsh|fish`: a few lines for the shell, which asks `cic completion words …` at each Tab."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cic.commandline import settings_table
from cic.commandline.arguments import arguments
from cic.commandline.commands import COMMANDS
from cic.commandline.flags import Flag, flags_of, peek
from cic.core.errors import UserError

_BASH = """_cic() {
    local IFS=$'\\n'
    COMPREPLY=($(cic completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _cic cic
"""
_SCRIPTS = {
    "bash": _BASH,
    "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{_BASH}",
    "fish": "complete -c cic -a '(cic completion words -- (commandline -opc)[2..] (commandline -ct))'\n",
}


@dataclass(frozen=True)
class CompletionArgs:
    shell: Literal["bash", "zsh", "fish"]
    """Your shell; put `eval "$(cic completion bash)"` into ~/.bashrc, or `cic completion fish | source` for fish."""


def completion(args: list[str]) -> None:
    if args[:2] == ["words", "--"]:
        print("\n".join(words(args[2:])))
        return
    given = arguments(CompletionArgs, args, "completion", positional=["shell"])
    if given is not None:
        print(_SCRIPTS[given.shell], end="")


def words(typed: list[str]) -> list[str]:
    """What may stand in place of the last word; nothing leaves it to the shell, which knows files."""
    *before, last = typed or [""]
    if not before:
        return _starting(list(COMMANDS), last)
    try:
        flags = _flags(before)
    except UserError:  # a name that does not exist, half typed
        return []
    named = {flag.spelling: flag for flag in flags if not flag.positional}
    asked = named.get(before[-1])
    if asked is not None and asked.kind != "bool":
        return _starting(_values(asked), last)
    return _starting([*named, "--help"], last) if last.startswith("-") else []


def _starting(options: list[str], start: str) -> list[str]:
    return [option for option in options if option.startswith(start)]


def _flags(before: list[str]) -> list[Flag]:
    from cic.commandline import exporting, looking, showing, training
    from cic.report.pictures.look import Look, Shot

    command, extra = before[0], {"pretrain": training.PretrainArgs, "finetune": training.FinetuneArgs}
    if command in extra:
        chosen = [peek(before, f"--{what}") for what in ("objective", "learner", "scale")]
        names = [name or usual for name, usual in zip(chosen, ("cic", "ddpg", "laptop"), strict=True)]
        objective, learner, scale = names
        found = settings_table.groups(
            settings_table.known(), command, objective, learner, scale, flags_of(extra[command])
        )
        return [flag for group in found for flag in group.flags]
    plain: dict[str, list[type]] = {
        "evaluate": [looking.EvaluateArgs],
        "skills": [showing.SkillsArgs, Look],
        "film": [showing.FilmArgs, Shot],
        "export": [exporting.ExportArgs],
    }
    return [flag for part in plain.get(command, []) for flag in flags_of(part)]


def _values(flag: Flag) -> list[str]:
    from cic.envs import domains

    if flag.name == "objective":
        return list(settings_table.known()["objectives"])
    if flag.name == "learner":
        return list(settings_table.known()["learners"])
    if flag.name == "domain":
        return list(domains())
    if flag.name == "task":
        return [f"{name}-{task}" for name, domain in domains().items() for task in domain.tasks]
    return list(flag.choices)
