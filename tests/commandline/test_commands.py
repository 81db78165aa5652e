"""Every command at smoke scale."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import WatchedEnv, make_loop, stop

import cic
from cic import cli, envs
from cic.core.errors import Interrupted
from cic.runs.folder import Run
from cic.training.loading import config_of

TASK = "gridworld-reach_top_left"
TINY = ["--scale", "smoke", "--hidden", "16", "--batch", "16", "--quiet"]
SHORT = ["--steps", "60", "--warmup", "40"]
Output = Callable[..., str]


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(flag: str, output: Output) -> None:
    assert output(flag) == f"cic {cic.__version__}\n"


def test_console_script_is_installed() -> None:
    script = Path(sys.executable).with_name("cic")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"cic {cic.__version__}\n"


def test_pretrain_finetune_and_evaluate(tmp_path: Path, output: Output) -> None:
    before, after, scratch = tmp_path / "before", tmp_path / "after", tmp_path / "scratch"
    options = ["--domain", "gridworld", "--skill-dim", "3", "--temperature", "0.3", "--seed", "7"]
    assert output("pretrain", *options, "--out", before, *SHORT, *TINY).startswith(f"{before}: ")
    config = Run(before).config
    assert (config["seed"], config["options"]["skill_dim"], config["options"]["temperature"]) == (7, 3, 0.3)
    assert config["learning"]["hidden"] == 16

    assert "return" in output("finetune", before, "--task", TASK, "--critic", "all", "--out", after, *SHORT, *TINY)
    assert Run(after).config["critic"] == "all"
    assert len(json.loads((after / "trials.json").read_text())["trials"]) == 2

    output("finetune", "--scratch", "--task", TASK, "--out", scratch, *SHORT, *TINY)
    config = Run(scratch).config
    assert (config["objective"], config["pretrained"]) == ("ddpg", None)
    assert not (scratch / "inherited").exists()

    assert TASK in output("evaluate", after, "--episodes", "2")
    found = json.loads(output("evaluate", after, "--episodes", "3", "--json"))
    assert len(found["returns"][TASK]) == 3
    assert len(found["skill"]) == 3
    found = json.loads(output("evaluate", before, "--episodes", "2", "--json"))
    assert set(found["returns"]) == {"reach_top_left", "reach_top_right", "reach_bottom_left", "reach_bottom_right"}
    assert found["skill"] is None
    assert json.loads(output("evaluate", before, "--skill", "0.25", "--json"))["skill"] == [0.25] * 3


@pytest.mark.parametrize("learner", ["td3", "sac"])
def test_another_learner(learner: str, tmp_path: Path, output: Output) -> None:
    before, after, scratch = tmp_path / "before", tmp_path / "after", tmp_path / "scratch"
    options = ["--domain", "gridworld", "--learner", learner, "--skill-dim", "3"]
    output("pretrain", *options, "--out", before, *TINY, *SHORT)
    search = ["--search", "random", "--search-steps", "40", "--trial-steps", "20", "--eval-episodes", "1"]
    output("finetune", before, "--task", TASK, *search, "--eval-every", "60", "--out", after, "--quiet", *SHORT)
    assert Run(after).config["learner"] == learner
    assert json.loads((after / "trials.json").read_text())["search"] == "random"
    assert TASK in output("evaluate", after, "--episodes", "1")
    output("finetune", "--scratch", "--task", TASK, "--learner", learner, "--out", scratch, *TINY, *SHORT)
    assert Run(scratch).config["learner"] == learner

    env = WatchedEnv(envs.make("gridworld"), events={50: stop()})
    with pytest.raises(Interrupted):
        make_loop(tmp_path / "stopped", "pretrain", config_of(Run(before)), env).train()
    output("pretrain", "--resume", tmp_path / "stopped", "--quiet")
    for file in ("metrics.jsonl", "checkpoints/000000060/agent.safetensors"):
        assert (tmp_path / "stopped" / file).read_bytes() == (before / file).read_bytes()


def test_skills_prints_a_table_and_writes_figures(skills: Path, tmp_path: Path, output: Output) -> None:
    printed = output("skills", skills, "--count", "4", "--no-video", "--out", tmp_path)
    assert "path (cells)" in printed
    assert "of 100 cells of x" in printed
    assert sorted(os.listdir(tmp_path)) == ["skills.csv", "skills.png"]
    with open(tmp_path / "skills.csv") as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ["skill", "0", "0.333", "0.667", "1", "together"]


def test_objectives_and_envs_list_names(output: Output) -> None:
    assert all(name in output("objectives") for name in ("cic", "diayn", "rnd", "ddpg"))
    assert all(name in output("envs") for name in ("walker-run", "quadruped-jump", "point_mass-easy"))


def test_resume_gives_the_metrics_of_an_uninterrupted_run(unfinished: Path, skills: Path, output: Output) -> None:
    assert output("pretrain", "--resume", unfinished, "--quiet").startswith(str(unfinished))
    assert (unfinished / "metrics.jsonl").read_bytes() == (skills / "metrics.jsonl").read_bytes()


def test_milestones_can_be_finetuned_and_evaluated(skills: Path, tmp_path: Path, output: Output) -> None:
    out = tmp_path / "run"
    output("finetune", skills, "--at", "60", "--task", TASK, "--out", out, "--steps", "45", "--warmup", "40", *TINY)
    assert Run(out).config["pretrain_steps"] == 60
    output("evaluate", skills, "--at", "60", "--episodes", "1")


def test_a_task_without_domain_belongs_to_the_domain_of_the_run(skills: Path, tmp_path: Path, output: Output) -> None:
    output("finetune", skills, "--task", "reach_top_left", "--steps", "110", "--quiet", "--out", tmp_path / "run")
    assert Run(tmp_path / "run").config["task"] == TASK


def test_without_out_a_new_folder_is_made_under_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert cli.main(["pretrain", "--domain", "gridworld", "--steps", "10", *TINY]) == 0
    first, second = sorted((tmp_path / "runs").iterdir())
    assert first.name.startswith("pretrain-cic-gridworld-s0-")
    assert Run(first).config == Run(second).config


def test_progress_is_on_stderr_unless_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pretrain", "--domain", "gridworld", "--steps", "210", "--out"]
    assert cli.main([*words, str(tmp_path / "a"), *TINY[:-1]]) == 0
    printed = capsys.readouterr().err
    assert "step 100/210" in printed.replace(",", "")
    assert "steps/s" in printed
    assert cli.main([*words, str(tmp_path / "b"), *TINY]) == 0
    assert capsys.readouterr().err == ""
