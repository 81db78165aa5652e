"""`cic doctor`: what it measures, against numbers computed here, and its answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cic
from cic.cli import main
from cic.training.doctor import Checkup, Finding, doctor

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 16, "batch": 16, "quiet": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cic.pretrain("gridworld", out=tmp_path_factory.mktemp("doctor") / "run", steps=300, **SMALL).path


def by_name(found: Checkup) -> dict[str, Finding]:
    return {one.check: one for one in found.findings}


def test_random_actions_are_the_reference(run: Path) -> None:
    """Distinct cells of 36 random walks of 30 steps."""
    found = by_name(doctor(run, steps=30))
    random = int(found["cells visited"].reference.removeprefix("random actions: "))
    env = cic.envs.make("gridworld", num_envs=36, seed=0)
    rng = np.random.default_rng(0)
    obs, _ = env.reset(seed=[start for _ in range(12) for start in range(3)])
    seen = {tuple(row) for row in obs.round(4)}
    for _ in range(30):
        obs = env.step(rng.uniform(-1, 1, (36, 2)).astype(np.float32))[0]
        seen |= {tuple(row) for row in obs.round(4)}
    env.close()
    assert random == len(seen)


@pytest.mark.filterwarnings("ignore:CIC's released loss", "ignore:the discriminator", "ignore:the embedding")
def test_a_collapse_is_found_and_sets_the_exit_code(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run.parent / "collapsed"
    cic.pretrain("walker", out=path, steps=600, loss="released", **SMALL | {"batch": 128})
    assert main(["doctor", str(path), "--steps", "10"]) == 1
    shown = capsys.readouterr().out
    assert "cosine of skills and transitions" in shown
    assert 'use loss="infonce"' in shown
    assert "Not sound" in shown


def test_a_finetuning_is_compared_by_its_return(run: Path, tmp_path: Path) -> None:
    tuned = cic.finetune(run, "reach_top_left", out=tmp_path / "tuned", steps=150, **SMALL).path
    found = by_name(doctor(tuned, steps=10))
    assert "reward per episode" in found
    assert not {"cells visited", "intrinsic reward", "deviation of the reward"} & set(found)


def test_problems_of_training_that_no_row_shows_are_listed(run: Path) -> None:
    path = run / "result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"problems": {"own": "bad"}}))
    found = doctor(run, steps=10)
    path.write_text(json.dumps(result))
    assert by_name(found)["reported in training"].value == "own"
    assert not found.sound


def test_the_summary() -> None:
    fine, weak, bad = (Finding("x", "1", "", verdict) for verdict in ("ok", "weak", "bad"))
    assert Checkup("run", 1, (fine, fine)).summary == "Sound: all 2 checks passed."
    assert Checkup("run", 1, (fine, weak)).summary == "Sound: all 2 checks passed, 1 of them weakly."
    assert Checkup("run", 1, (fine, weak, bad)).summary == "Not sound: 1 of 3 checks failed."


def test_an_environment_that_imports_code_needs_trust(run: Path) -> None:
    path = run / "config.json"
    before = path.read_text()
    path.write_text(before.replace('"domain": "gridworld"', '"domain": "gymnasium:module:Env-v0"'))
    with pytest.raises(cic.UserError, match="trust"):
        doctor(run)
    path.write_text(before)
