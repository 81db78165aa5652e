"""Execute the code blocks of the documentation.

Blocks in `sh`, `python` and `console` fences run in order, page by page, in an empty folder. An HTML comment directly
above a fence changes how its block is executed:

    <!-- test: smoke -->        laptop and paper scale mean smoke scale, and large numbers are reduced
    <!-- test: slow -->         only in `make test-all`
    <!-- test: skip REASON -->  never executed; commands and flags are still checked to exist

- `python`: all blocks of a page share one namespace. A block whose first line is `# NAME.py` is saved under that name
  instead, for later commands.
- `sh`: a `cic` or `python FILE` command runs in this process; `…` in a path stands for any text. Installation commands
  are checked (extras, make targets) but not executed. All other commands run in bash.
- `console`: lines that start with `$ ` are commands, the others their output, in which `…` stands for any text. The
  output is compared unless the block is marked `smoke`.

`python tests/document_blocks.py` runs all pages with `console` blocks and updates the outputs that they show.
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest import mock

from cic import cli
from cic.core import imports
from cic.envs import registry
from cic.learning.objectives import base
from cic.training.offline_settings import PRESETS
from cic.training.settings import SCALES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"(?:^[ ]*<!-- test: (?P<marks>[^\n]*?) -->\s*\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>sh|python|console)\n(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_FILE = re.compile(r"# (\w+\.py)\n")
_NOT_EXECUTED = re.compile(
    r"(python -m )?pip install|git clone|cd |\. |source |apt |make |eval |docker |kubectl |sbatch "
)
_NUMBERS = {"--steps": 400, "--episodes": 2, "--count": 2, "--compare": 2, "--starts": 1, "--seconds": 0.2}
_NUMBERS |= {"--infer": 200, "--goals": 2, "--library": 2, "--library-steps": 20, "--library-starts": 1}
_ADDED = {
    "evaluate": ["--episodes"],
    "skills": ["--count", "--compare", "--starts", "--seconds"],
    "film": ["--seconds"],
}


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    language: str
    code: str
    marks: tuple[str, ...]
    line: int
    span: tuple[int, int]
    """Where the code is in the page's text."""

    @property
    def skipped(self) -> bool:
        return self.marks[:1] == ("skip",)

    @property
    def slow(self) -> bool:
        return "slow" in self.marks and not self.skipped

    @property
    def smoke(self) -> bool:
        return "smoke" in self.marks and not self.skipped

    @property
    def commands(self) -> list[str]:
        """The shell commands, without comments and with continued lines joined."""
        if self.language == "python":
            return []
        lines = self.code.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in lines]
        return [line.replace(".venv/bin/", "") for line in lines if line]


def name(page: Path) -> str:
    """The path of a page in the repository."""
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else str(page)


def blocks_of(page: Path) -> list[Block]:
    """All executable blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            found["language"],
            textwrap.dedent(found["code"]),
            tuple((found["marks"] or "").split()),
            text.count("\n", 0, found.start("code")),
            found.span("code"),
        )
        for found in _BLOCK.finditer(text)
    ]


def run_page(page: Path, folder: Path, slow: bool = False) -> dict[Block, str]:
    """Execute the blocks of a page in an empty folder.

    Returns:
        For each console block, the block with the present output of its commands.
    """
    shown = {}
    with _page_state(folder) as module:
        for block in blocks_of(page):
            if block.skipped or (block.slow and not slow):
                continue
            try:
                with _smoke_scale() if block.smoke else contextlib.nullcontext():
                    text = _run_block(block, module)
            except (Exception, SystemExit) as error:
                where = f"{name(page)}:{block.line}"
                raise AssertionError(f"the block at {where} failed: {type(error).__name__}: {error}") from error
            if block.language == "console" and not block.smoke:
                shown[block] = text
    return shown


def matches(shown: str, output: str) -> bool:
    """Whether an output agrees with the one on the page, in which `…` stands for any text."""
    return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), output, re.DOTALL) is not None


@contextlib.contextmanager
def _page_state(folder: Path) -> Iterator[ModuleType]:
    """A namespace, a working directory and registries of a page's own."""
    module, before = ModuleType("documentation_page"), os.getcwd()
    sys.modules[module.__name__] = module  # a dataclass looks up its module
    with (
        mock.patch.dict(base._REGISTRY),
        mock.patch.dict(registry._OWN),
        mock.patch.object(imports, "_IMPORTED", []),
        mock.patch.object(sys, "path", [str(folder), *sys.path]),
        mock.patch.dict(
            os.environ, COLUMNS="80", PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ),
    ):
        os.chdir(folder)
        try:
            yield module
        finally:
            os.chdir(before)
            for key, loaded in list(sys.modules.items()):  # another page may have a file with the same name
                if loaded is module or Path(getattr(loaded, "__file__", None) or ROOT).parent == folder:
                    del sys.modules[key]


@contextlib.contextmanager
def _smoke_scale() -> Iterator[None]:
    presets = mock.patch.dict(PRESETS, laptop=PRESETS["smoke"], exorl=PRESETS["smoke"])
    with presets, mock.patch.dict(SCALES, laptop=SCALES["smoke"], paper=SCALES["smoke"]):
        yield


def _run_block(block: Block, module: ModuleType) -> str:
    if block.language == "python":
        _run_python(block, module)
        return ""
    return "".join(f"$ {command}\n{_run_command(command, block.smoke)}" for command in block.commands)


def _run_python(block: Block, module: ModuleType) -> None:
    code = block.code
    if block.smoke:
        code = re.sub(r"\bsteps=[\d_]+", f"steps={_NUMBERS['--steps']}", code)
    if name := _FILE.match(code):
        Path(name[1]).write_text(code, encoding="utf-8")
        return
    file = Path(f"block_at_line_{block.line}.py")  # so that tracebacks and inspect find the source
    file.write_text(code, encoding="utf-8")
    exec(compile(code, str(file.resolve()), "exec"), vars(module))


def _run_command(command: str, smoke: bool) -> str:
    words = shlex.split(command)
    if _NOT_EXECUTED.match(command):
        check_installation(words)
        return ""
    if words[0] not in ("cic", "python") or any(word in ("|", "&&", ">", ";") for word in words):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout
    words = [path for word in words for path in _expanded(word)]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if words[0] == "cic":
            words = _smaller(words) if smoke else words
            code = cli.main(words[1:])
            assert code == 0, f"`{shlex.join(words)}` failed with exit code {code}"
        else:
            with mock.patch.object(sys, "argv", words[1:]):
                runpy.run_path(words[1], run_name="__main__")
    return "".join(line.rstrip() + "\n" for line in printed.getvalue().splitlines())


def _expanded(word: str) -> list[str]:
    """The paths that a pattern stands for; the newest one if it contains `…`."""
    if "…" in word:
        return sorted(glob.glob(word.replace("…", "*")), key=os.path.getmtime)[-1:] or [word]
    return sorted(glob.glob(word)) or [word] if "*" in word else [word]


def _smaller(words: list[str]) -> list[str]:
    """The same command with numbers that take seconds."""
    words = list(words)
    for flag, number in _NUMBERS.items():
        if flag in words:
            value = words.index(flag) + 1
            words[value] = words[value] if words[value] == "0" else str(number)
        elif flag in _ADDED.get(words[1], ()):
            words += [flag, str(number)]
    if words[1] in ("sweep", "reproduce"):
        if "--scale" in words:
            words[words.index("--scale") + 1] = "smoke"
        elif not {"--list", "--status", "--draw"} & set(words):
            words += ["--scale", "smoke"]
        if not {"--list", "--status", "--slots"} & set(words):
            words += ["--slots", "1"]
    return words


def check_installation(words: list[str]) -> None:
    """Check what an installation command names: extras of pip, targets of make."""
    if "pip" in words:
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        for extras in re.findall(r"\[(.*?)\]", " ".join(words)):
            for extra in extras.split(","):
                assert re.search(rf"^{extra} = \[", project, re.MULTILINE), f"there is no extra {extra}"
    if words[0] == "make":
        targets = (ROOT / "Makefile").read_text(encoding="utf-8")
        for target in words[1:]:
            assert re.search(rf"^{target}:", targets, re.MULTILINE), f"there is no make target {target}"


def update() -> None:
    """Write the present output into every console block that shows another one."""
    for page in PAGES:
        if any(block.language == "console" and not block.skipped for block in blocks_of(page)):
            with tempfile.TemporaryDirectory() as folder:
                shown = run_page(page, Path(folder).resolve(), slow=True)
            text = page.read_text(encoding="utf-8")
            for block, output in reversed(shown.items()):
                if not matches(block.code, output):
                    start, end = block.span
                    text = text[:start] + output + text[end:]
            page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    update()
