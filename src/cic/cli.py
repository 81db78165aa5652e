"""`cic COMMAND …`: finds the command, and says in one sentence what went wrong. Everything else is in `commandline`."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import FrameType
from typing import Any

from cic import __version__
from cic.commandline.commands import COMMANDS, overview
from cic.core.errors import Interrupted, UserError, unknown


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. 0 is success, 1 a sweep with runs that failed, 2 the user's mistake, 130 stopped and saved."""
    args = list(sys.argv[1:] if argv is None else argv)
    warnings.showwarning = _show_warning
    try:
        with _stopping_at_once_while_importing():
            code = _run(args)
            sys.stdout.flush()
            return code
    except UserError as error:
        return _fail(str(error))
    except BrokenPipeError:  # `cic … | head` has seen enough
        _close_output()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        hint = "; make room, then continue with --resume" if error.errno == errno.ENOSPC else ""
        return _fail(f"{where}{error.strerror or error}{hint}")
    except Interrupted as error:
        return _fail(str(error), 130)
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    return 0


def _run(args: list[str]) -> int:
    if args in (["--version"], ["-V"]):
        print(f"cic {__version__}")
        return 0
    if not args or args[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if args[0] not in COMMANDS:
        raise unknown("command", args[0], COMMANDS)
    rest, imports = _without_imports(args[1:])
    if imports or os.environ.get("CIC_IMPORT"):
        from cic.core.imports import import_first

        import_first(imports)
    module, _, function = COMMANDS[args[0]].home.partition(":")
    return getattr(import_module(f"cic.commandline.{module}"), function)(rest) or 0


def _without_imports(args: list[str]) -> tuple[list[str], list[str]]:
    """The words without `--import X`, and each X: they may bring the names that the other words use."""
    rest, found = [], []
    words = iter(args)
    for word in words:
        if word == "--import":
            found.append(next(words, ""))
        elif word.startswith("--import="):
            found.append(word.partition("=")[2])
        else:
            rest.append(word)
    if "" in found:
        raise UserError("--import needs the name of a module or the path of a file")
    return rest, found


@contextlib.contextmanager
def _stopping_at_once_while_importing() -> Iterator[None]:
    """Ctrl-C in the middle of an import ends the process: numpy and torch would make an ImportError of it."""

    def stop(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                os.write(2, b"cic: stopped\n")
                os._exit(130)
            frame = frame.f_back
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGINT, stop)
    except ValueError:  # not in the main thread, which alone gets signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _fail(sentence: str, code: int = 2) -> int:
    with contextlib.suppress(OSError):  # nobody may be listening any more
        print(f"cic: {sentence}", file=sys.stderr, flush=True)
    return code


def _close_output() -> None:
    """Python flushes its output at exit, and would complain once more."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    with contextlib.suppress(OSError):
        print(f"cic: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
