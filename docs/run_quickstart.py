"""Run the commands of docs/tutorials/first-skills.md and write their output into the page.

    python docs/run_quickstart.py

A test compares the two.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
from pathlib import Path

from cic import cli

PAGE = Path(__file__).parent / "tutorials" / "first-skills.md"
_CONSOLE = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)


def printed(folder: Path | str) -> str:
    """The page's console with what its commands print now, run in an empty folder."""
    lines = []
    before, width = os.getcwd(), os.environ.get("COLUMNS", "")
    os.chdir(folder)
    os.environ["COLUMNS"] = "80"
    try:
        for command in [line for line in shown().splitlines() if line.startswith("$ ")]:
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                if cli.main(shlex.split(command)[2:]) != 0:
                    raise SystemExit(f"{command} failed")
            lines += [command, *said.getvalue().splitlines()]
    finally:
        os.chdir(before)
        os.environ["COLUMNS"] = width
    return "\n".join(lines) + "\n"


def shown() -> str:
    """The page's console as it is."""
    found = _CONSOLE.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    return found.group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as empty:
        new = printed(empty)
    PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(shown(), new), encoding="utf-8")
