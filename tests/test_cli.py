"""The command line: quick, honest about mistakes in one sentence, and every command at smoke scale."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import WatchedEnv, make_loop, stop

import cic
from cic import cli, envs
from cic.core.errors import Interrupted
from cic.runs.folder import FORMAT, Run
from cic.training.loading import config_of

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 16, "batch": 16, "quiet": True}
TASK = "gridworld-reach_top_left"
TINY = ["--scale", "smoke", "--hidden", "16", "--batch", "16", "--quiet"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def skills(home: Path) -> Path:
    """A pre-training in the gridworld with skills of dimension 4 and two checkpoints."""
    return cic.pretrain(
        "gridworld",
        out=home / "skills",
        skill_dim=4,
        steps=120,
        warmup=40,
        checkpoint_every=60,
        milestones=(60,),
        **SMALL,
    ).path


@pytest.fixture(scope="module")
def tuned(home: Path, skills: Path) -> Path:
    return cic.finetune(skills, TASK, out=home / "tuned", steps=80, warmup=40, eval_every=80, **SMALL).path


@pytest.fixture
def copied(skills: Path, tmp_path: Path) -> Path:
    """A copy of the pre-training that a test may harm."""
    return Path(shutil.copytree(skills, tmp_path / "copied"))


@pytest.fixture(scope="module")
def killed(home: Path, skills: Path) -> Path:
    """The same pre-training, but its environment failed between the two checkpoints."""

    def fail() -> None:
        raise RuntimeError("the power went")

    config = config_of(Run(skills))
    env = WatchedEnv(envs.make("gridworld"), events={90: fail})
    with pytest.raises(RuntimeError, match="power"):
        make_loop(home / "killed", "pretrain", config, env).train()
    return home / "killed"


@pytest.fixture
def unfinished(killed: Path, tmp_path: Path) -> Path:
    """A copy of the pre-training that did not end."""
    return Path(shutil.copytree(killed, tmp_path / "unfinished"))


@pytest.fixture
def mistake(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must fail: exit code 2, one sentence on stderr, nothing on stdout."""

    def run(*args: str | Path) -> str:
        capsys.readouterr()
        assert cli.main([str(arg) for arg in args]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1, said.err
        assert said.err.startswith("cic: ")
        assert len(said.err) < 400
        return said.err.removeprefix("cic: ").rstrip("\n")

    return run


def say(capsys: pytest.CaptureFixture[str], *args: str | Path) -> str:
    """Runs a command that must succeed; what it printed."""
    capsys.readouterr()
    code = cli.main([str(arg) for arg in args])
    said = capsys.readouterr()
    assert code == 0, said.err
    return said.out


# ---- at once ---------------------------------------------------------------------------------------------------


def test_help_answers_within_half_a_second_and_without_torch() -> None:
    code = (
        "import sys; from cic import cli; cli.main(['--help']); sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        best = min(best, time.perf_counter() - began)
    assert best < 0.5
    for command in cli.COMMANDS:
        assert f"  {command} " in done.stdout


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_the_commands(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "pretrain" in say(capsys, *args)


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert say(capsys, flag) == f"cic {cic.__version__}\n"


def test_the_console_script_is_installed() -> None:
    script = Path(sys.executable).with_name("cic")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"cic {cic.__version__}\n"


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"usage: cic {command}" in say(capsys, command, "--help")


def test_help_shows_every_setting_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    shown = " ".join(say(capsys, "pretrain", "--help").replace("│", " ").split())
    for flag, meaning in [
        ("--temperature FLOAT", "T of the contrastive loss. (default: 0.5)"),
        ("--steps INT", "Environment steps, over all copies. (default: 450,000)"),
        ("--lr FLOAT", "Adam's learning rate."),
        ("--out ", "Folder of the run"),
        ("--resume ", "Continue this run"),
        ("--device TEXT", "Where the networks live"),
        ("--seed INT", "The same seed gives the same bits"),
    ]:
        assert flag in shown
        assert meaning in shown


def test_help_shows_the_options_of_the_objective_and_the_defaults_of_the_scale(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = " ".join(
        say(capsys, "pretrain", "--objective", "rnd", "--scale", "paper", "--help").replace("│", " ").split()
    )
    assert "--temperature" not in shown
    assert "(default: 2,000,000)" in shown


@pytest.mark.parametrize(
    ("learner", "shown", "hidden"),
    [
        ("ddpg", ["--noise FLOAT", "--noise-clip FLOAT"], ["--alpha", "--actor-every"]),
        (
            "td3",
            ["--target-noise FLOAT", "--actor-every INT", "Updates of the critic for each of the actor."],
            ["--alpha"],
        ),
        ("sac", ["--alpha FLOAT", "--target-entropy FLOAT", "Entropy aimed at"], ["--noise", "--actor-every"]),
    ],
)
@pytest.mark.parametrize("command", ["pretrain", "finetune"])
def test_help_shows_the_settings_of_the_learner(
    command: str, learner: str, shown: list[str], hidden: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = " ".join(say(capsys, command, "--learner", learner, "--help").replace("│", " ").split())
    for words in [*shown, "--lr FLOAT"]:
        assert words in said
    for words in hidden:
        assert words not in said


# ---- every command ---------------------------------------------------------------------------------------------


def test_from_pretraining_to_a_tuned_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after, scratch = tmp_path / "before", tmp_path / "after", tmp_path / "scratch"
    short = ["--steps", "60", "--warmup", "40"]
    said = say(capsys, "pretrain", "--domain", "gridworld", "--skill-dim", "3", "--temperature", "0.3", "--seed", "7",
               "--out", before, *short, *TINY)  # fmt: skip
    assert said.startswith(f"{before}: ")
    config = Run(before).config
    assert (config["seed"], config["options"]["skill_dim"], config["options"]["temperature"]) == (7, 3, 0.3)
    assert config["learning"]["hidden"] == 16

    said = say(capsys, "finetune", before, "--task", TASK, "--critic", "all", "--out", after, *short, *TINY)
    assert "return" in said
    assert Run(after).config["critic"] == "all"
    assert len(json.loads((after / "trials.json").read_text())["trials"]) == 2

    say(capsys, "finetune", "--scratch", "--task", TASK, "--out", scratch, *short, *TINY)
    config = Run(scratch).config
    assert (config["objective"], config["pretrained"]) == ("ddpg", None)
    assert not (scratch / "inherited").exists()

    table = say(capsys, "evaluate", after, "--episodes", "2")
    assert TASK in table
    found = json.loads(say(capsys, "evaluate", after, "--episodes", "3", "--json"))
    assert len(found["returns"][TASK]) == 3
    assert len(found["skill"]) == 3
    found = json.loads(say(capsys, "evaluate", before, "--episodes", "2", "--json"))
    assert set(found["returns"]) == {"reach_top_left", "reach_top_right", "reach_bottom_left", "reach_bottom_right"}
    assert found["skill"] is None
    found = json.loads(say(capsys, "evaluate", before, "--episodes", "2", "--skill", "0.25", "--json"))
    assert found["skill"] == [0.25] * 3


@pytest.mark.parametrize("learner", ["td3", "sac"])
def test_another_learner_from_pretraining_to_a_tuned_policy(
    learner: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after, scratch = tmp_path / "before", tmp_path / "after", tmp_path / "scratch"
    short = ["--steps", "60", "--warmup", "40", "--quiet"]
    say(
        capsys,
        "pretrain",
        "--domain",
        "gridworld",
        "--learner",
        learner,
        "--skill-dim",
        "3",
        "--out",
        before,
        *TINY,
        *short[:4],
    )
    say(capsys, "finetune", before, "--task", TASK, "--search", "random", "--search-steps", "40", "--trial-steps", "20",
        "--eval-every", "60", "--eval-episodes", "1", "--out", after, *short)  # fmt: skip
    assert Run(after).config["learner"] == learner
    assert json.loads((after / "trials.json").read_text())["search"] == "random"
    assert TASK in say(capsys, "evaluate", after, "--episodes", "1")
    say(capsys, "finetune", "--scratch", "--task", TASK, "--learner", learner, "--out", scratch, *TINY, *short[:4])
    assert Run(scratch).config["learner"] == learner
    env = WatchedEnv(envs.make("gridworld"), events={50: stop()})
    with pytest.raises(Interrupted):
        make_loop(tmp_path / "stopped", "pretrain", config_of(Run(before)), env).train()
    say(capsys, "pretrain", "--resume", tmp_path / "stopped", "--quiet")
    assert (tmp_path / "stopped" / "metrics.jsonl").read_bytes() == (before / "metrics.jsonl").read_bytes()
    weights = "checkpoints/000000060/agent.safetensors"
    assert (tmp_path / "stopped" / weights).read_bytes() == (before / weights).read_bytes()


def test_skills_are_shown_as_a_table_and_a_picture(
    skills: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = say(capsys, "skills", skills, "--count", "4", "--no-video", "--out", tmp_path)
    assert "path (cells)" in said
    assert "of 100 cells of x" in said
    assert sorted(os.listdir(tmp_path)) == ["skills.csv", "skills.png", "starts.png"]
    with open(tmp_path / "skills.csv") as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ["skill", "0", "0.333", "0.667", "1", "together"]


def test_objectives_and_environments_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    said = say(capsys, "objectives")
    assert all(name in said for name in ("cic", "diayn", "rnd", "ddpg"))
    said = say(capsys, "envs")
    assert all(name in said for name in ("walker-run", "quadruped-jump", "point_mass-easy"))


def test_a_stopped_run_is_continued(unfinished: Path, skills: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert say(capsys, "pretrain", "--resume", unfinished, "--quiet").startswith(str(unfinished))
    assert (unfinished / "metrics.jsonl").read_bytes() == (skills / "metrics.jsonl").read_bytes()


def test_milestones_can_be_finetuned_and_evaluated(
    skills: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say(
        capsys,
        "finetune",
        skills,
        "--at",
        "60",
        "--task",
        TASK,
        "--out",
        tmp_path / "run",
        "--steps",
        "45",
        "--warmup",
        "40",
        *TINY,
    )
    assert Run(tmp_path / "run").config["pretrain_steps"] == 60
    say(capsys, "evaluate", skills, "--at", "60", "--episodes", "1")


def test_without_out_a_new_folder_is_made_under_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert cli.main(["pretrain", "--domain", "gridworld", "--steps", "10", *TINY]) == 0
    first, second = sorted((tmp_path / "runs").iterdir())
    assert first.name.startswith("pretrain-cic-gridworld-s0-")
    assert Run(first).config == Run(second).config


def test_progress_goes_to_stderr_and_quiet_is_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loud = [arg for arg in TINY if arg != "--quiet"]
    assert cli.main(["pretrain", "--domain", "gridworld", "--steps", "210", "--out", str(tmp_path / "a"), *loud]) == 0
    said = capsys.readouterr().err
    assert "step 100/210" in said.replace(",", "")
    assert "steps/s" in said
    assert cli.main(["pretrain", "--domain", "gridworld", "--steps", "110", "--out", str(tmp_path / "b"), *TINY]) == 0
    assert capsys.readouterr().err == ""


# ---- mistakes in what was typed --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("pretran --domain walker", 'unknown command "pretran"; did you mean "pretrain"?'),
        ("pretrain", "--domain"),
        ("pretrain --domain wlaker", 'unknown environment "wlaker"; did you mean "walker" or '),
        ("pretrain --domain walker-run", 'reward-free: give the domain "walker"'),
        ("pretrain --domain walker --objective cci", 'unknown objective "cci"; did you mean "cic"?'),
        ("pretrain --domain walker --scale hugee", 'unknown scale "hugee"'),
        ("pretrain --domain walker --preset papr", 'unknown preset of cic "papr"; did you mean "paper"?'),
        ("pretrain --domain walker --temprature 0.3", "did you mean --temperature?"),
        ("pretrain --domain walker --objective rnd --temperature 0.3", "--temperature"),
        ("pretrain --domain walker --temperature warm", "--temperature"),
        ("pretrain --domain walker --temperature", "--temperature"),
        ("pretrain --domain walker --loss hinge", "hinge"),
        ("pretrain --domain walker --steps 0", "steps must be at least 1"),
        ("pretrain --domain walker --steps 1.5", "--steps"),
        ("pretrain --domain walker --lr -1", "lr must be positive"),
        ("pretrain --domain walker --temperature 0", "temperature must be at least 0.02"),
        ("pretrain --domain walker --device warp", 'device "warp"'),
        ("pretrain --domain walker --device cuda:99", 'device "cuda:99"'),
        ("pretrain --domain gridworld --replay 2 --out {new}", "replay of 2 steps is too small"),
        ("pretrain --domain walker --learner sacc", 'unknown learner "sacc"; did you mean "sac"?'),
        ("pretrain --domain walker --learner sac --noise 0.1", "--noise"),
        ("pretrain --domain walker --learner td3 --actor-every 0", "actor_every must be at least 1"),
        ("pretrain --domain walker --learner sac --alpha 0", "alpha must be positive"),
        ("pretrain --domain walker --seed -1", "seed must lie in [0, 2³¹)"),
        (f"finetune {{skills}} --task {TASK} --learner sac --hidden 16", "was pre-trained with ddpg: drop --learner"),
        (f"finetune {{skills}} --task {TASK} --learner sca", 'unknown learner "sca"; did you mean "sac"?'),
        (f"finetune --scratch --task {TASK} --method cem", "--method"),
        ("pretrain walker", "walker"),
        ("finetune --task walker-run", "either the folder of a pre-training or --scratch"),
        ("finetune {skills} --scratch --task walker-run", "either the folder of a pre-training or --scratch"),
        ("finetune --scratch --task walker", '"walker" is a domain without a reward'),
        ("finetune --scratch --task walker-fly", 'unknown task of walker "fly"'),
        ("finetune --scratch --task walker-run --skill 0.5", "an agent from scratch has no skills"),
        ("finetune {skills} --task point_mass-easy --hidden 16", 'pre-trained in "gridworld"'),
        (f"finetune {{skills}} --task {TASK} --scale smoke", "networks of width 16"),
        (f"finetune {{skills}} --task {TASK} --hidden 16 --at 77", "no weights at step 77; there are: 60, 120"),
        (f"finetune {{skills}} --task {TASK} --hidden 16 --skill 0.1 0.2", "--skill has 2 numbers"),
        (f"finetune {{skills}} --task {TASK} --hidden 16 --skill a", "--skill"),
        (
            f"finetune {{skills}} --task {TASK} --hidden 16 --search each --out {{new}}",
            "`each` does not fit box skills",
        ),
        (f"finetune {{tuned}} --task {TASK} --hidden 16", "is a finetuning run"),
        (f"finetune {{nowhere}} --task {TASK}", "nowhere does not exist"),
        ("finetune --resume {skills}", "is a pretrain run: continue it with `cic pretrain --resume"),
        ("pretrain --resume {nowhere}", "nowhere does not exist"),
        ("pretrain --resume {skills}", "is finished already"),
        ("finetune --resume {tuned}", "is finished already"),
        ("pretrain --resume {skills} --steps 7", "has 120 steps already: --steps must be more"),
        (
            "pretrain --resume {skills} --seed 7",
            "a resumed run keeps its settings but --steps and --device; drop --seed",
        ),
        ("pretrain --domain gridworld --out {skills}", "holds a run already"),
        ("evaluate", "Folder of a pre-training"),
        ("evaluate {nowhere}", "nowhere does not exist"),
        ("evaluate {file}", "file is a file"),
        ("evaluate {empty}", "config.json is missing"),
        ("evaluate {skills} --skill 0.1 0.2 0.3", "--skill has 3 numbers"),
        ("evaluate {skills} --episodes 0", "episodes must be at least 1"),
        ("evaluate {skills} --at 5", "no weights at step 5"),
        ("evaluate {skills} --seed -1", "seed"),
        ("skills {nowhere} --quiet", "nowhere does not exist"),
        ("skills {skills} --count 0", "count must be at least 1"),
        ("skills {skills} --choose all", "all"),
        ("envs walker", "takes no folder or name, not walker"),
        ("objectives cic", "takes no folder or name, not cic"),
    ],
)
def test_mistakes_are_said_in_one_sentence(
    line: str, word: str, mistake: Callable[..., str], tmp_path: Path, skills: Path, tuned: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    places = {"skills": skills, "tuned": tuned, "new": tmp_path / "new", "nowhere": tmp_path / "nowhere"}
    places |= {"file": tmp_path / "file", "empty": tmp_path / "empty"}
    assert word in mistake(*line.format(**places).split())
    assert not (tmp_path / "new").exists(), "a mistake leaves no half-made run"


def test_logging_to_weights_and_biases_needs_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: Callable[..., str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    said = mistake("pretrain", "--domain", "gridworld", "--wandb", "--out", tmp_path / "new", *TINY)
    assert "pip install 'cic[wandb]'" in said
    assert not (tmp_path / "new").exists()


def test_an_agent_without_skills_takes_none(tmp_path: Path, mistake: Callable[..., str]) -> None:
    path = cic.pretrain("gridworld", "rnd", out=tmp_path / "rnd", steps=20, **SMALL).path
    assert "no skills" in mistake("finetune", path, "--task", TASK, "--skill", "0.5", *TINY)
    assert "no skills" in mistake("evaluate", path, "--skill", "0.5")
    assert "no skills" in mistake("skills", path, "--skill", "0.5", "--quiet")


def test_skills_must_be_numbers(skills: Path, mistake: Callable[..., str]) -> None:
    assert "finite" in mistake("evaluate", skills, "--skill", "nan")
    assert "finite" in mistake("finetune", skills, "--task", TASK, "--skill", "inf", *TINY)


# ---- run folders that are not as they should be ----------------------------------------------------------------


def test_a_run_of_the_first_version(copied: Path, mistake: Callable[..., str]) -> None:
    header = json.loads((copied / "config.json").read_text()) | {"format": 1, "version": "0.1.0"}
    (copied / "config.json").write_text(json.dumps(header))
    for line in (["evaluate", copied], ["pretrain", "--resume", copied], ["finetune", copied, "--task", TASK]):
        assert "was made by cic 0.1, whose weights this version does not read" in mistake(*line)


def test_a_run_of_a_newer_version(copied: Path, mistake: Callable[..., str]) -> None:
    header = json.loads((copied / "config.json").read_text()) | {"format": FORMAT + 1, "version": "99.0"}
    (copied / "config.json").write_text(json.dumps(header))
    for line in (["evaluate", copied], ["pretrain", "--resume", copied], ["finetune", copied, "--task", TASK]):
        said = mistake(*line)
        assert "newer version of cic (99.0" in said
        assert "upgrade" in said


def test_a_damaged_config(copied: Path, mistake: Callable[..., str]) -> None:
    os.truncate(copied / "config.json", 100)
    assert "config.json is damaged" in mistake("evaluate", copied)


@pytest.mark.parametrize("harm", ["missing", "truncated"])
def test_damaged_weights_fall_back_with_a_warning_and_fail_without_others(
    copied: Path, harm: str, mistake: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("000000120", "000000060"):
        weights = copied / "checkpoints" / folder / "agent.safetensors"
        if harm == "missing":
            weights.unlink()
        else:
            os.truncate(weights, 1000)
        if folder == "000000120":
            assert cli.main(["evaluate", str(copied), "--episodes", "1"]) == 0
            said = capsys.readouterr().err.splitlines()
            assert len(said) == 1
            assert said[0].startswith("cic: warning: ")
            assert "000000120 is damaged" in said[0]
    shutil.rmtree(copied / "milestones")
    (copied / "result.json").unlink()
    capsys.readouterr()
    assert cli.main(["evaluate", str(copied)]) == 2
    assert "is damaged" in capsys.readouterr().err.splitlines()[-1]
    assert cli.main(["pretrain", "--resume", str(copied)]) == 2
    assert "every checkpoint" in capsys.readouterr().err.splitlines()[-1]


def test_weights_of_another_shape(copied: Path, mistake: Callable[..., str]) -> None:
    header = json.loads((copied / "config.json").read_text())
    header["config"]["learning"]["hidden"] = 8
    (copied / "config.json").write_text(json.dumps(header))
    assert "do not fit its config" in mistake("evaluate", copied)


def test_a_config_changed_since_the_checkpoint(unfinished: Path, mistake: Callable[..., str]) -> None:
    header = json.loads((unfinished / "config.json").read_text())
    header["config"]["seed"] = 5
    (unfinished / "config.json").write_text(json.dumps(header))
    assert "was changed after" in mistake("pretrain", "--resume", unfinished)


def test_a_config_with_an_unknown_key(copied: Path, mistake: Callable[..., str]) -> None:
    header = json.loads((copied / "config.json").read_text())
    header["config"]["learning"]["hiden"] = 5
    (copied / "config.json").write_text(json.dumps(header))
    assert 'unknown field of config.learning "hiden"; did you mean "hidden"?' in mistake("evaluate", copied)


@pytest.mark.parametrize(
    "line", ["evaluate {run}", "finetune {run} --task " + TASK + " --hidden 16", "skills {run} --quiet"]
)
def test_a_pickle_where_weights_are_expected_is_refused_and_never_loaded(
    copied: Path, line: str, mistake: Callable[..., str], tmp_path: Path
) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "sprung",)

    torch.save({"learner.actor.trunk.0.weight": Trap()}, copied / "checkpoints" / "000000120" / "agent.safetensors")
    said = mistake(*line.format(run=copied).split())
    assert "agent.safetensors is a pickle, which can run any code" in said
    assert not (tmp_path / "sprung").exists()


def test_a_pickle_is_not_resumed_from(unfinished: Path, mistake: Callable[..., str]) -> None:
    torch.save({}, unfinished / "checkpoints" / "000000060" / "replay.safetensors")
    assert "is a pickle" in mistake("pretrain", "--resume", unfinished)


def test_a_finetuning_that_lost_what_it_inherited(tuned: Path, tmp_path: Path, mistake: Callable[..., str]) -> None:
    path = Path(shutil.copytree(tuned, tmp_path / "run"))
    (path / "result.json").unlink()
    shutil.rmtree(path / "inherited")
    shutil.rmtree(path / "checkpoints")  # which have all that it learned since
    assert "inherited" in mistake("finetune", "--resume", path)


def test_two_processes_on_one_run(unfinished: Path, mistake: Callable[..., str]) -> None:
    hold = "run.lock(); print('held', flush=True); input()"
    code = f"from cic.runs.folder import Run; run = Run({str(unfinished)!r}); {hold}"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        before = {file: file.read_bytes() for file in unfinished.rglob("*") if file.is_file()}
        assert "another process is writing" in mistake("pretrain", "--resume", unfinished)
        assert {file: file.read_bytes() for file in unfinished.rglob("*") if file.is_file()} == before
        other.communicate("\n")
    assert cli.main(["pretrain", "--resume", str(unfinished), "--quiet"]) == 0


def test_a_run_without_a_checkpoint(unfinished: Path, mistake: Callable[..., str]) -> None:
    shutil.rmtree(unfinished / "checkpoints")
    shutil.rmtree(unfinished / "milestones")
    assert "has no checkpoint yet" in mistake("evaluate", unfinished)


# ---- numbers that are none -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_a_run_that_diverges_stops_and_says_so_in_one_sentence(
    verb: str, tmp_path: Path, mistake: Callable[..., str]
) -> None:
    """`tests/test_training.py` has the cases; here is one that a user can bring about."""
    what = ["--domain", "gridworld"] if verb == "pretrain" else ["--scratch", "--task", TASK]
    wild = ["--lr", "1e30", "--warmup", "40", "--steps", "100", "--log-every", "10"]
    said = mistake(verb, *what, *wild, "--out", tmp_path / "run", *TINY)
    assert re.search(r"^(\S+ became (nan|-?inf) by|the policy's actions are not finite at) step \d\d: ", said), said
    assert "a smaller --lr usually helps" in said
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "failed"
    assert status["message"] == said


# ---- a full disk -----------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of its own, with little room."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", path], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("needs the right to mount a small file system")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.parametrize("spare", [0, 8_000, 60_000])
def test_a_full_disk_stops_the_run_cleanly_and_it_can_be_resumed(
    small_disk: Path, unfinished: Path, skills: Path, spare: int, mistake: Callable[..., str]
) -> None:
    """Full before the first line, while a line is written, or in the middle of a checkpoint."""
    path = Path(shutil.copytree(unfinished, small_disk / "run"))
    ballast = small_disk / "ballast"
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    ballast.write_bytes(b"x" * max(free - spare, 1))
    said = mistake("pretrain", "--resume", path, "--quiet")
    assert "full" in said or "No space left" in said
    assert "--resume" in said
    assert [int(folder.name) for folder in Run(path).checkpoints()] == [60]
    ballast.unlink()
    assert cli.main(["pretrain", "--resume", str(path), "--quiet"]) == 0
    assert (path / "metrics.jsonl").read_bytes() == (skills / "metrics.jsonl").read_bytes()
    weights = "checkpoints/000000120/agent.safetensors"
    assert (path / weights).read_bytes() == (skills / weights).read_bytes()


@pytest.mark.parametrize(
    "writer", ["cic.runs.storage.save_arrays", "cic.runs.jsonl_log.LineLog.write", "cic.runs.storage.os.fsync"]
)
def test_no_space_left_for_any_kind_of_file(
    unfinished: Path, skills: Path, writer: str, monkeypatch: pytest.MonkeyPatch, mistake: Callable[..., str]
) -> None:
    """The same where no file system can be mounted."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer, fail)
    said = mistake("pretrain", "--resume", unfinished, "--quiet")
    assert "full" in said or "No space left" in said
    assert "--resume" in said
    monkeypatch.undo()
    assert cli.main(["pretrain", "--resume", str(unfinished), "--quiet"]) == 0
    assert (unfinished / "metrics.jsonl").read_bytes() == (skills / "metrics.jsonl").read_bytes()


def test_a_full_disk_at_the_very_start(small_disk: Path, mistake: Callable[..., str]) -> None:
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    (small_disk / "ballast").write_bytes(b"x" * free)
    said = mistake("pretrain", "--domain", "gridworld", "--out", small_disk / "run", *TINY)
    assert "No space left" in said or "full" in said


def test_a_task_is_understood_in_the_domain_of_the_run(skills: Path, tmp_path: Path) -> None:
    short = ["--task", "reach_top_left", "--steps", "110", "--quiet", "--out", str(tmp_path / "run")]
    assert cli.main(["finetune", str(skills), *short]) == 0
    assert Run(tmp_path / "run").config["task"] == TASK
