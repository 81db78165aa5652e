"""`cic pretrain --from RUN`: the weights of another run, its settings with changes, and everything else afresh."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import cic
from cic.cli import main
from cic.runs.folder import Run

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 16, "batch": 16, "quiet": True, "skill_dim": 4}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cic.pretrain("gridworld", out=tmp_path_factory.mktemp("start") / "run", steps=150, seed=3, **SMALL).path


def test_a_new_run_starts_from_the_weights_with_changed_settings(run: Path, tmp_path: Path) -> None:
    """With a learning rate of almost 0 the weights stay where they start."""
    made = cic.pretrain(start=run, out=tmp_path / "new", steps=160, lr=1e-12, tau=1e-9, tau_alone=1e-9, quiet=True).path
    config = Run(made).config
    before = Run(run).config
    assert config["learning"]["lr"] == 1e-12
    assert {name: config[name] for name in ("domain", "objective", "seed", "options")} == {
        name: before[name] for name in ("domain", "objective", "seed", "options")
    }
    old, new = cic.load(run).learner.actor.state_dict(), cic.load(made).learner.actor.state_dict()
    assert all(torch.allclose(value, new[name], atol=1e-6) for name, value in old.items())
    assert json.loads((made / "result.json").read_text())["step"] == 160


def test_it_resumes_without_the_other_run(run: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"checkpoint_every": 60, "quiet": True}
    cic.pretrain(start=run, out=tmp_path / "a", steps=120, **settings)
    cic.resume(tmp_path / "a", steps=180, quiet=True)
    cic.pretrain(start=run, out=tmp_path / "b", steps=180, **settings)
    one, other = cic.load(tmp_path / "a").state_dict(), cic.load(tmp_path / "b").state_dict()
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_other_sizes_and_finetunings_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(cic.UserError, match="do not fit the new settings"):
        cic.pretrain(start=run, out=tmp_path / "wide", hidden=32, quiet=True)
    assert not (tmp_path / "wide").exists()
    with pytest.raises(cic.UserError, match=r"do not fit the new settings .*settings that add networks"):
        cic.pretrain(start=run, out=tmp_path / "more", novelty=1.0, quiet=True)
    with pytest.raises(cic.UserError, match="give a domain, or `start`"):
        cic.pretrain()


def test_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pretrain", "--from", str(run), "--steps", "120", "--out", str(tmp_path / "new"), "--quiet"]
    assert main(words) == 0
    assert Run(tmp_path / "new").config["steps"] == 120
    assert main([*words, "--objective", "rnd"]) == 2
    assert "keeps its objective" in capsys.readouterr().err


def test_two_widths_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "--domain", "gridworld", "--hidden", "256,256"]) == 2
    assert "all hidden layers have the same width: give one number, not 256,256" in capsys.readouterr().err
