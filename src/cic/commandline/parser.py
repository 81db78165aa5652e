"""argparse with this project's flags, error messages and help."""

from __future__ import annotations

import argparse
import difflib
import functools
import re
import shutil
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NoReturn

from cic.commandline.flags import Flag, is_number, value_of
from cic.core.errors import UserError

HELP = ("-h", "--help", "--help-all")


class HelpFormatter(argparse.HelpFormatter):
    """Help as wide as the terminal, at most 100 columns."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=min(shutil.get_terminal_size().columns, 100))


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `UserError` instead of printing the usage."""

    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(prog, add_help=False, allow_abbrev=False, formatter_class=HelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        raise UserError(message.removeprefix("argument "))


class CommandParser(Parser):
    """The parser of one command.

    The result contains only the flags that were given: settings have the defaults of their scale and method otherwise.
    """

    def __init__(self, command: str, about: str, words: Sequence[str]) -> None:
        super().__init__(f"cic {command}", description=f"{about[0].upper()}{about[1:]}.")
        self.flags: dict[str, Flag] = {}
        self.actions: dict[str, argparse.Action] = {}
        self._show_rare = "--help-all" in words

    def add_flags(self, title: str, flags: Iterable[Flag], rare: Collection[str] = (), hidden: bool = False) -> None:
        """Add a group of flags, required ones first. Flags that exist already are skipped."""
        group = self.add_argument_group(title)
        for flag in sorted(flags, key=lambda flag: (not flag.positional, not flag.required)):
            if flag.spelling in self.flags:
                continue
            self.flags[flag.spelling] = flag
            settings: dict[str, Any] = {"default": None if flag.positional else argparse.SUPPRESS}
            settings["help"] = argparse.SUPPRESS
            if not hidden and (self._show_rare or flag.name not in rare):
                settings["help"] = flag.help_with_default.replace("%", "%%")
            if flag.kind == "bool":
                settings["action"] = argparse.BooleanOptionalAction
            else:
                settings |= {"metavar": flag.metavar, "type": functools.partial(value_of, flag)}
                settings |= {"choices": flag.choices or None, "nargs": flag.nargs}
            name = [flag.name] if flag.positional else [flag.spelling]
            self.actions[flag.name] = group.add_argument(*name, **settings)

    def add_general(self) -> None:
        """Add what every command accepts. `cic.cli` handles both before it parses the flags."""
        group = self.add_argument_group("general")
        text = "Import this Python file or module first; it may register objectives and environments. Repeatable."
        group.add_argument("--import", metavar="FILE|MODULE", help=text)
        group.add_argument(*HELP, action="help", help="Print this help; --help-all includes rarely used settings.")
        for action in self.actions.values():
            action.help = with_quoted_flags(action.help or "", self.flags.values())
        self.usage = " ".join([self.prog, *filter(None, (flag.usage for flag in self.flags.values())), "[settings]"])

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the values of the flags that were given, by field name."""
        found, unexpected = self.parse_known_intermixed_args(self._prepared(words))
        if unexpected:
            raise self._unexpected(unexpected)
        given = {name: _tuple(value) for name, value in vars(found).items() if name in self.actions}
        for flag in self.flags.values():
            if flag.positional and not given[flag.name]:
                del given[flag.name]
            other = {"resume", "from"} & given.keys()  # that run has its settings
            if flag.required and flag.name not in given and not other:
                raise UserError(f"`{self.prog}` needs {flag.spelling}: {flag.help.rstrip('.')}")
        return given

    def _prepared(self, words: Sequence[str]) -> list[str]:
        """Adapt words to argparse's rules.

        - A flag may be spelled with underscores, as in Python.
        - A negative number such as `-1e-3` gets a space in front, else argparse takes it for a flag.
        - A positional word after a list of numbers moves to the front, else argparse takes it for one of the numbers.
        """
        front: list[str] = []
        rest: list[str] = []
        numbers = False
        for word in words:
            if word.startswith("--"):
                spelling, equals, value = word.partition("=")
                rest.append(spelling.replace("_", "-") + equals + value)
                flag = self.flags.get(rest[-1])
                numbers = flag is not None and flag.many and flag.kind in ("int", "float")
            elif numbers and not rest[-1].startswith("--") and not is_number(word):
                front.append(word)
            else:
                rest.append(f" {word}" if word.startswith("-") and is_number(word) else word)
        return [*front, *rest]

    def _unexpected(self, words: Sequence[str]) -> UserError:
        flags = [word.partition("=")[0] for word in words if word.startswith("-")]
        if flags:
            near = difflib.get_close_matches(flags[0], self.flags, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"see `{self.prog} --help-all`"
            return UserError(f"unknown flag {flags[0]}; {hint}")
        places = " ".join(flag.spelling for flag in self.flags.values() if flag.positional)
        takes = f"only {places}" if places else "no folder or name"
        return UserError(f"`{self.prog}` takes {takes}, not {' '.join(words)}; settings are --name value")

    def with_flag_names(self, message: str) -> str:
        """Replace parameters in a library's error message by flags: `num_envs must be …` → `--num-envs must be …`.

        A name of one word is replaced at the beginning or in backticks only: elsewhere it may be ordinary English.
        """
        names = flag_names(self.flags.values())
        message = with_quoted_flags(message, self.flags.values())
        pattern = r"""^\w+(?= must\b)|(?<![\w./"'`-])[a-z]+(?:_[a-z]+)+(?![\w/"'`-]|\.\w)"""
        return re.sub(pattern, lambda match: names.get(match[0], match[0]), message)


def with_quoted_flags(text: str, flags: Iterable[Flag]) -> str:
    """Replace `` `hidden` `` by `--hidden`, and `` `hidden=256` `` by `--hidden 256`."""
    names = flag_names(flags)
    pattern = rf"`({'|'.join(names)})(?:=([^`]*))?`"
    return re.sub(pattern, lambda match: f"{names[match[1]]} {match[2] or ''}".rstrip(), text) if names else text


def with_import_flag(text: str) -> str:
    """Replace `` `import FILE` ``, the Python statement, by `--import FILE`."""
    return re.sub(r"`import ([^`]+)`", r"--import \1", text)


def flag_names(flags: Iterable[Flag]) -> dict[str, str]:
    """Return the spelling of each flag by the name of its parameter."""
    return {flag.name: flag.spelling for flag in flags if not flag.positional}


def peek(words: Sequence[str], *names: str) -> dict[str, str]:
    """Return the values of a few flags before the others are known."""
    parser = Parser("cic", argument_default=argparse.SUPPRESS)
    for name in names:
        parser.add_argument(f"--{name}")
    return vars(parser.parse_known_args(words)[0])


def wants_help(words: Sequence[str]) -> bool:
    return any(word in HELP for word in words)


def _tuple(value: Any) -> Any:
    """Return a list as a tuple; `none` alone is None."""
    return (None if value == [None] else tuple(value)) if isinstance(value, list) else value
