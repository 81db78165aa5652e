"""The documentation is true: its Python runs, its quickstart prints what it says, its reference is the docstrings."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cic
from cic import cli
from cic.commandline.commands import COMMANDS
from cic.envs import registry
from cic.learning.objectives import base
from cic.training.settings import SCALES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)


LONG = {"sweep.md"}  # thirty runs on Ray: tests/sweep runs shorter ones
RUN = [page for page in PAGES if PYTHON.search(page.read_text()) and page.name not in LONG]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block after block, in one namespace; laptop scale means smoke, so that it takes seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(SCALES, "laptop", SCALES["smoke"])
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    monkeypatch.setattr(registry, "_OWN", dict(registry._OWN))
    names: dict[str, Any] = {"__name__": f"a page: {page.name}"}
    monkeypatch.setitem(sys.modules, names["__name__"], sys)  # where a class says that it comes from
    for number, block in enumerate(PYTHON.findall(page.read_text())):
        file = tmp_path / f"block{number}.py"
        file.write_text(block)
        exec(compile(block, str(file), "exec"), names)


def test_the_quickstarts_commands_give_the_quickstarts_numbers(tmp_path: Path) -> None:
    """If they should give others: make generated"""
    quickstart = script("run_quickstart")
    assert quickstart.printed(tmp_path) == quickstart.shown()


def test_every_command_and_flag_of_the_documentation_exists(capsys: pytest.CaptureFixture[str]) -> None:
    shown: dict[str, set[str]] = {}
    for command in COMMANDS:
        words = (
            [["--learner", name] for name in ("ddpg", "td3", "sac")] if command in ("pretrain", "finetune") else [[]]
        )
        for extra in words:
            assert cli.main([command, "--help-all", *extra]) == 0
        shown[command] = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    for page in PAGES:
        for block in SHELL.findall(page.read_text()):
            for line in block.splitlines():
                words = line.partition("#")[0].replace(".venv/bin/cic", "cic").split()
                if words[:1] != ["cic"]:
                    continue
                assert words[1] in COMMANDS, (page.name, line)
                for flag in [word.partition("=")[0] for word in words if word.startswith("--")]:
                    assert flag in shown[words[1]], (page.name, line)


def test_the_reference_is_made_from_the_docstrings() -> None:
    """If not: make generated"""
    reference = script("make_reference")
    assert reference.PAGE.read_text() == reference.page()


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation_and_every_link_leads_somewhere() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert f": {page.relative_to(ROOT / 'docs')}" in navigation
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {cic.__version__}\n" in (ROOT / "CITATION.cff").read_text()
