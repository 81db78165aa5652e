"""`--import`: a user's own methods and environments on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cic import cli
from cic.core import imports
from cic.core.errors import UserError
from cic.envs import registry
from cic.learning.objectives import base
from cic.runs.folder import Run

METHOD = """
import torch, gymnasium
import cic

@cic.register("constant")
class Constant(cic.Objective):
    "A constant."
    title = "Constant"
    def reward(self, batch):
        return torch.ones_like(batch.reward)

cic.register_env("mine", lambda: gymnasium.make("Pendulum-v1"))
"""
TINY = ["--scale", "smoke", "--hidden", "8", "--batch", "8", "--steps", "110", "--quiet"]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers, the others do not hear of."""
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    monkeypatch.setattr(registry, "_OWN", {})
    monkeypatch.setattr(imports, "_IMPORTED", [])
    monkeypatch.delitem(sys.modules, "constant_method", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("constant_method", None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "constant_method.py").write_text(METHOD)
    return tmp_path / "constant_method.py"


@pytest.mark.parametrize("way", ["file", "module", "variable", "equals"])
def test_an_own_method_on_the_command_line(
    way: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = {"file": ["--import", str(file)], "module": ["--import", "constant_method"], "variable": []}
    words["equals"] = ["--import=constant_method.py"]
    if way == "variable":
        monkeypatch.setenv("CIC_IMPORT", "constant_method")
    out = tmp_path / "run"
    assert (
        cli.main(["pretrain", "--domain", "mine", "--objective", "constant", "--out", str(out), *words[way], *TINY])
        == 0
    )
    recorded = json.loads((out / "config.json").read_text())["imports"]
    assert recorded == (["constant_method"] if way in ("module", "variable") else [str(file)])


def test_a_run_says_what_it_needs(file: Path, tmp_path: Path) -> None:
    """In a process of its own, which has not imported the method; opening a run imports nothing by itself."""
    out, env = tmp_path / "run", {**os.environ}
    made = [sys.executable, "-m", "cic.cli", "pretrain", "--domain", "gridworld", "--objective", "constant"]
    subprocess.run([*made, "--import", file, "--out", out, *TINY], check=True, env=env, capture_output=True)
    look = [sys.executable, "-m", "cic.cli", "evaluate", str(out), "--episodes", "1"]
    done = subprocess.run(look, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"was made with --import {file}" in done.stderr
    assert cli.main(["evaluate", str(out), "--episodes", "1", "--import", str(file)]) == 0


def test_the_message_hints_at_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--domain", "gridworld", "--objective", "mine_own"], ["--domain", "zzz", "--objective", "cic"]):
        assert cli.main(["pretrain", *words, *TINY]) == 2
        assert "--import FILE.py" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "word"),
    [("1 / 0", "ZeroDivisionError"), ("import nothing_of_that_name", "nothing_of_that_name"), ("x = ", "SyntaxError")],
)
def test_code_that_fails_is_one_sentence_and_leaves_no_trace(content: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "broken_code.py").write_text(content)
    with pytest.raises(UserError, match=word):
        imports.import_first([str(tmp_path / "broken_code.py")])
    assert "broken_code" not in sys.modules
    assert imports.imported() == []


def test_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (str(tmp_path / "nowhere.py"), "nothing_of_that_name"):
        with pytest.raises(UserError, match="cannot import"):
            imports.import_first([name])
    assert cli.main(["envs", "--import"]) == 2
    assert "--import needs" in capsys.readouterr().err


def test_the_header_keeps_it_when_the_run_is_opened(file: Path, tmp_path: Path) -> None:
    imports.import_first([str(file), str(file)])
    run = Run.plan(tmp_path / "run", "pretrain", {}).create({"imports": imports.imported()})
    assert Run(run.path).about["imports"] == [str(file)]
