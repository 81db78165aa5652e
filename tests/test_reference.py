"""The reference: generated pages equal the code, every part of the API has an example that runs, metrics are listed."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cic
from cic.commandline.commands import COMMANDS
from cic.core.callable_package import CallablePackage
from cic.envs import registry
from cic.learning.learners.base import learners
from cic.learning.objectives import base

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 16, "batch": 16, "warmup": 40, "log_every": 20, "quiet": True}
BUILT_IN = [name for name, cls in base.objectives() if cls.__module__.startswith("cic.") and name != "ddpg"]


def make_reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_equal_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """If not: make generated"""
    monkeypatch.setattr(base, "_REGISTRY", {name: base._REGISTRY[name] for name in [*BUILT_IN, "ddpg"]})
    for path, text in make_reference().pages().items():
        assert path.read_text(encoding="utf-8") == text, path.name


# ---- Python API ------------------------------------------------------------------------------------------------


def function(name: str) -> Any:
    """The function or class of this name."""
    found = getattr(cic, name)
    return found.__wrapped__ if isinstance(found, CallablePackage) else found


PARTS = [name for name in cic.__all__ if name not in ("data", "envs")]
EXAMPLE = re.compile(r"^ *```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


FIRST = ("pretrain", "finetune", "evaluate", "resume", "sweep")
ORDER = [*FIRST, *(name for name in PARTS if name not in FIRST)]
"""The examples use the runs that the first ones make."""


def test_every_part_of_the_api_is_on_the_page_once() -> None:
    page = (REFERENCE / "api.md").read_text(encoding="utf-8")
    for name in PARTS:
        found = function(name)
        assert page.count(f"::: {found.__module__}.{found.__qualname__}\n") == 1, name
        assert f"heading: cic.{name}\n" in page


@pytest.mark.parametrize("name", PARTS)
def test_docstrings_have_a_summary_arguments_and_an_example(name: str) -> None:
    found = function(name)
    text = inspect.getdoc(found) or ""
    assert text.splitlines()[0].endswith((".", ":")), name
    if inspect.isfunction(found):
        assert "Example:\n" in text
        parameters = inspect.signature(found).parameters
        for parameter in parameters.values():
            stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
            assert re.search(rf"^    {re.escape(stars + parameter.name)}: ", text, re.MULTILINE), parameter.name


@pytest.mark.slow
def test_the_examples_of_the_api_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, in one folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    monkeypatch.setattr(registry, "_OWN", dict(registry._OWN))
    monkeypatch.setattr("cic.sweep.driver.find_spec", lambda name: None)  # without Ray
    for name in ORDER:
        if name == "compare":
            for method in ("cic", "rnd"):
                for run in (tmp_path / "runs").glob(f"finetune-{method}-*"):
                    shutil.copytree(run, tmp_path / "runs" / method / run.name)
        for code in EXAMPLE.findall(inspect.getdoc(function(name)) or ""):
            example = ModuleType(f"example_of_{name}")
            example.__file__ = str(tmp_path / f"{name}.py")  # a method's class needs the file of its source
            Path(example.__file__).write_text(textwrap.dedent(code))
            monkeypatch.setitem(sys.modules, example.__name__, example)
            vars(example)["cic"] = cic
            exec(compile(textwrap.dedent(code), example.__file__, "exec"), vars(example))


def test_every_command_has_a_call() -> None:
    page = (REFERENCE / "api.md").read_text(encoding="utf-8")
    table = page.split("## Train")[0]
    for command in COMMANDS:
        assert f"`cic {command}`" in table or command == "completion"


def test_packages_are_called_like_functions() -> None:
    from cic.report.build import report

    assert inspect.signature(cic.report) == inspect.signature(report)
    with pytest.raises(cic.UserError, match='unknown option "papers"; did you mean "paper"'):
        cic.report("runs", papers=["cic"])


def test_importing_the_package_is_light() -> None:
    code = "import sys, cic; dir(cic); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "torch", "gymnasium", "ray", "matplotlib"} & set(done.stdout.split())


# ---- metrics ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def documented() -> set[str]:
    page = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `([^`]+)`", page, re.MULTILINE))


def logged(folder: Path) -> set[str]:
    """The metrics of a run, with TASK in place of the names of tasks."""
    lines = [line for name in ("metrics.jsonl", "timing.jsonl") for line in (folder / name).read_text().splitlines()]
    tasks = "|".join(["reward", *cic.envs.domains()["gridworld"].tasks])
    return {
        re.sub(rf"(zero_shot/|skill/explains_)({tasks})$", r"\1TASK", key) for line in lines for key in json.loads(line)
    }


@pytest.mark.parametrize("name", BUILT_IN)
def test_metrics_of_methods_are_documented(name: str, tmp_path: Path, documented: set[str]) -> None:
    settings = SMALL | {"steps": 80, "milestones": (60,), "diagnosed": 2}
    found = logged(cic.pretrain("gridworld", name, out=tmp_path / "run", **settings).path)
    assert "reward/intrinsic" in found
    assert found <= documented


@pytest.mark.parametrize("learner", list(learners()))
def test_metrics_of_learners_and_finetuning_are_documented(learner: str, tmp_path: Path, documented: set[str]) -> None:
    discrete = learners()[learner].discrete
    domain, task = ("gymnasium:CartPole-v1",) * 2 if discrete else ("gridworld", "reach_top_left")
    run = cic.pretrain(domain, learner=learner, out=tmp_path / "run", steps=60, **SMALL)
    more = {"steps": 120, "eval_every": 60, "eval_episodes": 1, "trial_steps": 10, "log_every": 20, "quiet": True}
    tuned = cic.finetune(run.path, task, out=tmp_path / "tuned", warmup=40, **more)
    found = logged(run.path) | logged(tuned.path)
    assert {"reward/task", "train/return", "eval/return"} <= found
    assert found <= documented
