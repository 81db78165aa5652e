"""`--import`: the user's own objectives and environments."""

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

METHOD = '''
from dataclasses import dataclass
import torch, gymnasium
import cic

@dataclass(frozen=True)
class Options:
    weight: float = 3.0
    """Of the constant."""
    undocumented: int = 1

@cic.register("constant")
class Constant(cic.Objective):
    "A constant."
    title = "Constant"
    Options = Options
    def reward(self, batch):
        return torch.full_like(batch.reward, self.options.weight)

cic.register_env("mine", lambda: gymnasium.make("Pendulum-v1"))
'''
TINY = ["--scale", "smoke", "--hidden", "8", "--batch", "8", "--steps", "110", "--quiet"]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what a test registers."""
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


@pytest.mark.parametrize("name", ["constant_method", "constant_method.py"])
@pytest.mark.parametrize(
    "words", [["--import", "{}", "pretrain"], ["pretrain", "--import", "{}"], ["pretrain", "--import={}"]]
)
def test_import_registers_an_objective_and_an_environment(
    name: str, words: list[str], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word.format(name) for word in words]
    out = tmp_path / "run"
    options = ["--weight", "2", "--domain", "mine", "--objective", "constant", "--out", str(out)]
    assert cli.main([*words, *options, *TINY]) == 0
    config = json.loads((out / "config.json").read_text())
    assert config["imports"] == [str(file) if name.endswith(".py") else name]
    assert config["config"]["options"] == {"weight": 2.0, "undocumented": 1}


def test_help_shows_the_options_of_an_imported_objective(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pretrain", "--import", str(file), "--objective", "constant", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--weight FLOAT          Of the constant. (default: 3)" in shown
    assert "--undocumented INT      (default: 1)" in shown


def test_import_can_be_repeated(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "constant_env.py").write_text("import cic, gymnasium\ncic.register_env('other', gymnasium.make)\n")
    assert cli.main(["--import", str(file), "envs", "--import", str(tmp_path / "constant_env.py")]) == 0
    assert imports.imported() == [str(file), str(tmp_path / "constant_env.py")]


def test_the_error_of_a_run_names_the_import_it_needs(file: Path, tmp_path: Path) -> None:
    """In a new process, which has not imported the method: loading a run imports nothing by itself."""
    out, env = tmp_path / "run", {**os.environ}
    made = [sys.executable, "-m", "cic.cli", "pretrain", "--domain", "gridworld", "--objective", "constant"]
    subprocess.run([*made, "--import", file, "--out", out, *TINY], check=True, env=env, capture_output=True)
    look = [sys.executable, "-m", "cic.cli", "evaluate", str(out), "--episodes", "1"]
    done = subprocess.run(look, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"was made with --import {file}" in done.stderr
    assert cli.main(["evaluate", str(out), "--episodes", "1", "--import", str(file)]) == 0


def test_commands_and_suggestions_name_the_import(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "my runs" / "mine"
    words = ["pretrain", "--domain", "mine", "--objective", "constant", "--import", str(file), "--out", str(out)]
    assert cli.main([*words, *TINY]) == 0
    capsys.readouterr()
    assert cli.main(["runs", str(out.parent)]) == 0
    assert f"cic finetune '{out}' --task mine --import {file}\n" in capsys.readouterr().out

    assert cli.main(["finetune", str(out), "--task", "mime"]) == 2
    assert capsys.readouterr().err == f'cic: unknown task of {out} "mime"; did you mean "mine"?\n'
    assert cli.main(["finetune", "--resume", str(out)]) == 2
    assert f"resume it with `cic pretrain --resume '{out}' --import {file}`" in capsys.readouterr().err

    monkeypatch.setattr(registry, "_OWN", {})  # as in a process without --import
    monkeypatch.setattr(imports, "_IMPORTED", [])
    dataset = str(tmp_path / "dataset")
    for words in (
        ["evaluate", str(out)],
        ["finetune", str(out), "--task", "mine"],
        ["export", str(out), "--out", dataset],
        ["offline", str(out), "--out", dataset],
    ):
        assert cli.main(words) == 2
        assert f"{out} was made with --import {file}\n" in capsys.readouterr().err

    status = json.loads((out / "status.json").read_text())
    (out / "status.json").write_text(json.dumps(status | {"state": "failed"}))
    (out / "result.json").unlink()
    assert cli.main(["runs", str(out.parent)]) == 0
    assert f"cic pretrain --resume '{out}' --import {file}\n" in capsys.readouterr().out
    assert cli.main(["pretrain", "--resume", str(out)]) == 2
    assert f"was made with --import {file}\n" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["rnu", "walker-rnu"])
def test_suggestions_of_tasks_come_from_the_run(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["finetune", "walker", "--task", task]) == 2
    assert capsys.readouterr().err == 'cic: unknown task of walker "rnu"; did you mean "run"?\n'


def test_imported_environments_are_listed(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken_env.py").write_text("import cic\ncic.register_env('broken', lambda: 1 / 0)\n")
    assert cli.main(["envs", "--import", str(file), "--import", str(tmp_path / "broken_env.py")]) == 0
    shown = capsys.readouterr()
    assert "mine 3 1 200 -" in " ".join(shown.out.split())
    assert "The task of an environment of your own has the name of the environment." in shown.out
    broken = tmp_path / "broken_env.py"
    assert shown.err == f'cic: note: making "broken" failed with ZeroDivisionError: division by zero ({broken}:2)\n'


def test_the_error_message_mentions_import(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--domain", "gridworld", "--objective", "mine_own"], ["--domain", "zzz", "--objective", "cic"]):
        assert cli.main(["pretrain", *words, *TINY]) == 2
        assert "--import FILE)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "word"),
    [("1 / 0", "ZeroDivisionError"), ("import nothing_of_that_name", "nothing_of_that_name"), ("x = ", "SyntaxError")],
)
def test_code_that_fails_is_reported_and_not_registered(content: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "broken_code.py").write_text(content)
    with pytest.raises(UserError, match=word):
        imports.import_first([str(tmp_path / "broken_code.py")])
    assert "broken_code" not in sys.modules
    assert imports.imported() == []


def test_missing_files_and_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (str(tmp_path / "nowhere.py"), "nothing_of_that_name"):
        with pytest.raises(UserError, match="cannot import"):
            imports.import_first([name])
    assert cli.main(["envs", "--import"]) == 2
    assert "--import: expected one argument" in capsys.readouterr().err


def test_the_imports_are_stored_in_config_json(file: Path, tmp_path: Path) -> None:
    imports.import_first([str(file), str(file)])
    run = Run.plan(tmp_path / "run", "pretrain", {}).create({"imports": imports.imported()})
    assert Run(run.path).about["imports"] == [str(file)]
