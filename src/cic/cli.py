"""The entry point `cic COMMAND …`: run a command, and turn errors into one message and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from cic import __version__
from cic.commandline.commands import COMMANDS, command_parser, overview, run_command
from cic.commandline.parser import Parser, wants_help, with_import_flag
from cic.core.errors import Interrupted, UserError, unknown


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 after success, 1 if a run of a sweep or a check failed, 2 for invalid input, 130 if the user stopped the
        command.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    warnings.showwarning = _show_warning
    try:
        with _exit_if_interrupted_while_importing():
            code = _run(words)
            sys.stdout.flush()
            return code
    except UserError as error:
        if os.environ.get("CIC_TRACEBACK"):
            traceback.print_exception(error)
        return _fail(with_import_flag(str(error)))
    except BrokenPipeError:  # the reader closed the pipe, as in `cic … | head`
        _close_output()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        hint = "; free some space, then continue with --resume" if error.errno == errno.ENOSPC else ""
        return _fail(f"{where}{error.strerror or error}{hint}")
    except Interrupted as error:
        return _fail(str(error), 130)
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    return 0


def _run(words: list[str]) -> int:
    imports, words = _split_imports(words)
    if words in (["--version"], ["-V"]):
        print(f"cic {__version__}")
        return 0
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    command, *words = words
    if command not in COMMANDS:
        raise unknown("command", command, COMMANDS)
    if imports:
        from cic.core.imports import import_first

        import_first(imports)
    parser = command_parser(command, words)
    if wants_help(words):
        print(parser.format_help(), end="")
        return 0
    try:
        return run_command(command, parser.parse(words))
    except UserError as error:
        raise UserError(parser.with_flag_names(str(error))) from error


def _split_imports(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the values of `--import` from the other words, which may use names that the imported code registers."""
    parser = Parser("cic", argument_default=argparse.SUPPRESS)
    parser.add_argument("--import", action="append", metavar="FILE|MODULE")
    found, rest = parser.parse_known_args(words)
    return vars(found).get("import", []), rest


@contextlib.contextmanager
def _exit_if_interrupted_while_importing() -> Iterator[None]:
    """Make Ctrl-C during an import exit at once: numpy and torch would turn it into an ImportError."""

    def stop(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                os.write(2, b"cic: stopped\n")
                os._exit(130)
            frame = frame.f_back
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGINT, stop)
    except ValueError:  # only the main thread receives signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _fail(message: str, code: int = 2) -> int:
    with contextlib.suppress(OSError):  # stderr may be closed
        print(f"cic: {message}", file=sys.stderr, flush=True)
    return code


def _close_output() -> None:
    """Redirect stdout to nowhere, because Python flushes it at exit and would fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    with contextlib.suppress(OSError):
        print(f"cic: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
