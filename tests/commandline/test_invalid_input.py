"""Invalid input: exit code 2 and one line that names the value and what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cic

TASK = "gridworld-reach_top_left"
TINY = ["--scale", "smoke", "--hidden", "16", "--batch", "16", "--quiet"]
Error = Callable[..., str]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pretran --domain walker", 'unknown command "pretran"; did you mean "pretrain"?'),
        ("pretrain", "`cic pretrain` needs --domain: walker, quadruped"),
        ("pretrain --domian walker", "unknown flag --domian; did you mean --domain?"),
        ("pretrain --domain wlaker", 'unknown environment "wlaker"; did you mean "walker" or '),
        ("pretrain --domain walker-run", 'reward-free: give the domain "walker"'),
        ("pretrain --domain walker --objective cci", 'unknown objective "cci"; did you mean "cic"?'),
        ("pretrain --domain walker --scale hugee", 'unknown scale "hugee"'),
        ("pretrain --domain walker --preset papr", 'unknown preset of cic "papr"; did you mean "paper"?'),
        ("pretrain --domain walker --temprature 0.3", "did you mean --temperature?"),
        ("pretrain --domain walker --objective rnd --temperature 0.3", "unknown flag --temperature"),
        ("pretrain --domain walker --temperature warm", "--temperature: expected a number, not warm"),
        ("pretrain --domain walker --temperature", "--temperature: expected one argument"),
        ("pretrain --domain walker --loss hinge", '--loss: unknown value "hinge"'),
        ("pretrain --domain walker --steps 0", "--steps must be at least 1"),
        ("pretrain --domain walker --steps 1.5", "--steps: expected a whole number, not 1.5"),
        ("pretrain --domain walker --lr -1", "--lr must be positive"),
        ("pretrain --domain walker --temperature 0", "--temperature must be at least 0.02"),
        ("pretrain --domain walker --device warp", 'device "warp"'),
        ("pretrain --domain walker --device cuda:99", 'device "cuda:99"'),
        ("pretrain --domain gridworld --replay 2 --out {new}", "replay of 2 steps is too small"),
        ("pretrain --domain walker --learner sacc", 'unknown learner "sacc"; did you mean "sac"?'),
        ("pretrain --domain walker --learner sac --noise 0.1", "unknown flag --noise"),
        ("pretrain --domain walker --learner td3 --actor-every 0", "--actor-every must be at least 1"),
        ("pretrain --domain walker --learner sac --alpha 0", "--alpha must be positive"),
        ("pretrain --domain walker --seed -1", "--seed must lie in [0, 2³¹)"),
        (f"finetune {{skills}} --task {TASK} --learner sac --hidden 16", "was pre-trained with ddpg: omit --learner"),
        (f"finetune {{skills}} --task {TASK} --learner sca", 'unknown learner "sca"; did you mean "sac"?'),
        (f"finetune --scratch --task {TASK} --method cem", "unknown flag --method"),
        (f"finetune --scratch --task {TASK} --alpha 1", "unknown flag --alpha of the learner ddpg"),
        ("pretrain walker", "`cic pretrain` takes no folder or name, not walker"),
        ("finetune --task walker-run", "either the folder of a pre-training or --scratch"),
        ("finetune {skills} --scratch --task walker-run", "either the folder of a pre-training or --scratch"),
        ("finetune --scratch --task walker", '"walker" is a domain without a reward'),
        ("finetune --scratch --task walker-fly", 'unknown task of walker "fly"'),
        ("finetune --scratch --task walker-run --skill 0.5", "an agent from scratch has no skills"),
        ("finetune {skills} --task point_mass-easy --hidden 16", 'pre-trained in "gridworld"'),
        (f"finetune {{skills}} --task {TASK} --scale smoke", "networks of width 16"),
        (f"finetune {{skills}} --task {TASK} --hidden 16 --at 77", "no weights at step 77; there are: 60, 120"),
        (f"finetune {{skills}} --task {TASK} --hidden 16 --skill 0.1 0.2", "--skill has 2 numbers"),
        (f"finetune {{skills}} --task {TASK} --hidden 16 --skill a", "--skill: expected numbers"),
        (
            f"finetune {{skills}} --task {TASK} --hidden 16 --search each --out {{new}}",
            "`each` does not fit box skills",
        ),
        (f"finetune {{tuned}} --task {TASK} --hidden 16", "learned the task"),
        (f"finetune {{nowhere}} --task {TASK}", "nowhere does not exist"),
        ("finetune --resume {skills}", "is a pretrain run: resume it with `cic pretrain --resume"),
        ("pretrain --resume {nowhere}", "nowhere does not exist"),
        ("pretrain --resume {skills}", "is finished already"),
        ("finetune --resume {tuned}", "is finished already"),
        ("pretrain --resume {skills} --steps 7", "has 120 steps already: set --steps to a larger number"),
        ("pretrain --resume {skills} --seed 7", "keeps its settings except --steps and --device: drop --seed"),
        ("pretrain --domain walker --trust", "--trust needs --resume"),
        ("pretrain --domain walker --device gpu", 'the device "gpu" cannot be used here: choose cpu or cuda'),
        ("sweep --objectives cicc --domains walker --plan {new}", 'unknown objective "cicc"; did you mean "cic"'),
        ("sweep --objectives cic --domains walkr --plan {new}", 'unknown environment "walkr"; did you mean "walker"'),
        (
            "sweep --objectives cic --domains walker --set lrr=1 --plan {new}",
            'unknown setting "lrr"; did you mean "lr"',
        ),
        ("pretrain --domain walker --import {file}", "it is not a Python file"),
        ("pretrain --domain gridworld --out {skills}", "contains a run already"),
        ("evaluate", "`cic evaluate` needs RUN: Folder of a pre-training"),
        ("evaluate {nowhere}", "nowhere does not exist"),
        ("evaluate {file}", "file is a file"),
        ("evaluate {empty}", "config.json is missing"),
        ("evaluate {skills} --skill 0.1 0.2 0.3", "--skill has 3 numbers"),
        ("evaluate {skills} --episodes 0", "--episodes must be at least 1"),
        ("evaluate {skills} --at 5", "no weights at step 5"),
        ("evaluate {skills} --seed -1", "seed"),
        ("skills {nowhere} --quiet", "nowhere does not exist"),
        ("skills {skills} --count 0", "--count must be at least 1"),
        ("skills {skills} --choose all", '--choose: unknown value "all"'),
        ("envs walker", "takes no folder or name, not walker"),
        ("objectives cic", "takes no folder or name, not cic"),
    ],
)
def test_invalid_input(line: str, message: str, error: Error, tmp_path: Path, skills: Path, tuned: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    places = {"skills": skills, "tuned": tuned, "new": tmp_path / "new", "nowhere": tmp_path / "nowhere"}
    places |= {"file": tmp_path / "file", "empty": tmp_path / "empty"}
    assert message in error(*line.format(**places).split())
    assert not (tmp_path / "new").exists(), "invalid input leaves no folder"


def test_wandb_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Error) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    message = error("pretrain", "--domain", "gridworld", "--wandb", "--out", tmp_path / "new", *TINY)
    assert "pip install 'cic[wandb]'" in message
    assert not (tmp_path / "new").exists()


def test_an_agent_without_skills_refuses_a_skill(tmp_path: Path, error: Error) -> None:
    path = cic.pretrain("gridworld", "rnd", out=tmp_path / "rnd", steps=20, scale="smoke", hidden=16, quiet=True).path
    assert "no skills" in error("finetune", path, "--task", TASK, "--skill", "0.5", *TINY)
    assert "no skills" in error("evaluate", path, "--skill", "0.5")
    assert "no skills" in error("skills", path, "--skill", "0.5", "--quiet")


def test_skills_must_be_finite(skills: Path, error: Error) -> None:
    assert "finite" in error("evaluate", skills, "--skill", "nan")
    assert "finite" in error("finetune", skills, "--task", TASK, "--skill", "inf", *TINY)
