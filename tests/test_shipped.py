"""The agents that ship with the package."""

from __future__ import annotations

import importlib.util
import json
import shutil
from datetime import date
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import cic
from cic.cli import main
from cic.core.errors import UserError
from cic.runs.bundled import FOLDER, bundled_agents
from cic.runs.folder import Run
from cic.training.library import checked

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = ("point_mass", "quadruped", "steer_walker", "walker")


@pytest.fixture(scope="module")
def making() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_agents", EXAMPLES / "make_agents.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_they_are_all_there_and_small(making: ModuleType) -> None:
    assert tuple(bundled_agents()) == NAMES == tuple(sorted(making.COMMANDS))
    size = sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file())
    assert size < 5_000_000


@pytest.mark.parametrize("name", NAMES)
def test_each_acts_and_names_its_source(name: str) -> None:
    agent = cic.load(name)
    obs = np.zeros((3, agent.spaces.obs), np.float32)
    skills = agent.objective.skills.sample(3, np.random.default_rng(0))
    assert np.isfinite(agent.act(obs, skills)).all()
    made, run = json.loads((FOLDER / name / "made.json").read_text()), Run(name)
    domain = name.removeprefix("steer_")
    assert made["command"].startswith(f"cic pretrain --domain {domain} ")
    assert made["seed"] == run.config["seed"]
    assert date.fromisoformat(made["date"])
    tasks = cic.envs.domains()[domain].tasks
    assert made["score"]["mean"].keys() == made["score"]["best skill"].keys() == set(tasks)
    library = checked(run.library(), agent.objective.skills.dim, agent.spaces.obs)
    assert library is not None
    assert len(library.skills) == 64
    text = "".join(path.read_text() for path in (FOLDER / name).rglob("*.json"))
    assert "/work" not in text
    assert "/home" not in text


def test_the_score_is_what_the_agent_gets(making: ModuleType) -> None:
    said = json.loads((FOLDER / "point_mass" / "made.json").read_text())["score"]
    found = making.score(FOLDER / "point_mass")
    for kind in ("mean", "best skill"):
        for task, value in said[kind].items():
            assert found[kind][task] == pytest.approx(value, rel=0.05, abs=5)


def test_half_the_bits_hardly_change_an_action(making: ModuleType, tmp_path: Path) -> None:
    run = cic.pretrain(
        "walker", "cic", scale="smoke", out=tmp_path / "run", quiet=True, hidden=64, library=2, library_steps=20
    )
    making.reduce(run.path, tmp_path / "small", "cic pretrain")
    whole, small = cic.load(run.path), cic.load(tmp_path / "small")
    rng = np.random.default_rng(0)
    obs, skills = rng.standard_normal((500, 24)).astype(np.float32), whole.objective.skills.sample(500, rng)
    assert 0 < np.abs(whole.act(obs, skills) - small.act(obs, skills)).max() < 0.01
    before, after = (
        sum(f.stat().st_size for f in p.rglob("agent.safetensors"))
        for p in (run.path / "milestones", tmp_path / "small")
    )
    assert after < 0.6 * before


def test_a_folder_of_that_name_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Run("walker").path == FOLDER / "walker"
    shutil.copytree(FOLDER / "point_mass", tmp_path / "walker")
    assert Run("walker").config["domain"] == "point_mass"
    with pytest.raises(UserError, match="point_mass, quadruped, steer_walker, walker"):
        Run("hopper")
    with pytest.raises(UserError, match="does not exist"):
        Run("../walker/nothing")


def test_nothing_is_written_to_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(str(path) for path in FOLDER.rglob("*"))
    for words in (
        ["pretrain", "--resume", "walker", "--steps", "200000"],
        ["skills", "point_mass", "--no-video", "--count", "2"],
    ):
        assert main(words) == 2
        assert "is part of the cic package" in capsys.readouterr().err
    assert sorted(str(path) for path in FOLDER.rglob("*")) == before


def test_finetuning_starts_from_one_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    short = "--steps 260 --warmup 200 --trial-steps 50 --eval-episodes 1 --batch 32 --replay 1000 --quiet --compile off"
    words = ["finetune", "walker", "--task", "walker-run", "--out", "tuned", *short.split()]
    assert main(words) == 0, capsys.readouterr().err
    run = Run("tuned")
    assert run.config["pretrained"] == "walker"
    assert run.config["pretrain_steps"] == Run("walker").config["steps"]
    assert len(run.inherited().library["skills"]) == 64  # type: ignore[union-attr]
    tuned, before = cic.load("tuned"), cic.load("walker")
    assert tuned.skill is not None
    start = dict(before.learner.named_parameters())
    for name, weight in tuned.learner.named_parameters():
        if name.startswith("actor"):
            assert (weight - start[name]).abs().max() < 0.05  # sixty steps from where it began
