"""Small runs for the commands, and two ways to run a command."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import WatchedEnv, make_loop

import cic
from cic import cli, envs
from cic.runs.folder import Run
from cic.training.loading import config_of

SMALL = {"scale": "smoke", "hidden": 16, "batch": 16, "quiet": True}
TASK = "gridworld-reach_top_left"


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def skills(home: Path) -> Path:
    """A pre-training in the gridworld with skills of dimension 4 and two checkpoints."""
    settings = {"skill_dim": 4, "steps": 120, "warmup": 40, "checkpoint_every": 60, "milestones": (60,)}
    return cic.pretrain("gridworld", out=home / "skills", **settings, **SMALL).path


@pytest.fixture(scope="session")
def tuned(home: Path, skills: Path) -> Path:
    return cic.finetune(skills, TASK, out=home / "tuned", steps=80, warmup=40, eval_every=80, **SMALL).path


@pytest.fixture(scope="session")
def killed(home: Path, skills: Path) -> Path:
    """The same pre-training, whose environment failed between the two checkpoints."""

    def fail() -> None:
        raise RuntimeError("the power went")

    env = WatchedEnv(envs.make("gridworld"), events={90: fail})
    with pytest.raises(RuntimeError, match="power"):
        make_loop(home / "killed", "pretrain", config_of(Run(skills)), env).train()
    return home / "killed"


@pytest.fixture
def copied(skills: Path, tmp_path: Path) -> Path:
    """A copy of the pre-training that a test may damage."""
    return Path(shutil.copytree(skills, tmp_path / "copied"))


@pytest.fixture
def unfinished(killed: Path, tmp_path: Path) -> Path:
    """A copy of the pre-training that did not finish."""
    return Path(shutil.copytree(killed, tmp_path / "unfinished"))


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must succeed; return its output."""

    def run(*words: str | Path) -> str:
        capsys.readouterr()
        code = cli.main([str(word) for word in words])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    return run


@pytest.fixture
def error(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must fail with exit code 2 and one line on stderr; return the message."""

    def run(*words: str | Path) -> str:
        capsys.readouterr()
        assert cli.main([str(word) for word in words]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1, printed.err
        assert printed.err.startswith("cic: ")
        assert len(printed.err) < 400
        return printed.err.removeprefix("cic: ").rstrip("\n")

    return run
