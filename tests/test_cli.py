"""The command line: quick, honest about mistakes in one sentence, and every command at smoke scale."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import cic
from cic import cli
from cic.core.types import Batch, Metrics
from cic.learning.agent import Agent
from cic.runs.folder import FORMAT, Run

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


@pytest.fixture
def unfinished(copied: Path) -> Path:
    """A pre-training that was killed between its two checkpoints."""
    (copied / "result.json").unlink()
    shutil.rmtree(copied / "checkpoints" / "000000120")
    return copied


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
        ("--steps INT", "Environment steps, over all copies. (default: 100000)"),
        ("--lr FLOAT", "Adam's learning rate."),
        ("--out ", "Folder of the run"),
        ("--resume ", "Continue this run"),
        ("--threads INT", "Threads of a matrix product."),
        ("--device STR", "Where the networks live"),
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
    assert "(default: 2000000)" in shown


# ---- every command ---------------------------------------------------------------------------------------------


def test_from_pretraining_to_a_tuned_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after, scratch = tmp_path / "before", tmp_path / "after", tmp_path / "scratch"
    short = ["--steps", "60", "--warmup", "40"]
    said = say(capsys, "pretrain", "--domain", "gridworld", "--skill-dim", "3", "--temperature", "0.3", "--seed", "7",
               "--out", before, *short, *TINY)  # fmt: skip
    assert said.startswith(f"{before}: ")
    config = Run(before).config
    assert (config["seed"], config["options"]["skill_dim"], config["options"]["temperature"]) == (7, 3, 0.3)
    assert config["agent"]["hidden"] == 16

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


def test_skills_are_shown_as_a_table_and_a_picture(
    skills: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = say(capsys, "skills", skills, "--count", "4", "--no-video", "--out", tmp_path)
    assert "path length" in said
    assert sorted(os.listdir(tmp_path)) == ["skills.csv", "skills.png"]
    with open(tmp_path / "skills.csv") as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ["skill", "0.00", "0.33", "0.67", "1.00"]


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
    assert cli.main(["pretrain", "--domain", "gridworld", "--steps", "10", "--out", str(tmp_path / "b"), *TINY]) == 0
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
        ("pretrain --domain walker --device cuda", 'device "cuda"'),
        ("pretrain --domain gridworld --replay 2 --out {new}", "replay of 2 steps is too small"),
        ("pretrain --domain gridworld --wandb --out {new} --quiet --scale smoke", "pip install 'cic[wandb]'"),
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
            f"finetune {{skills}} --task {TASK} --hidden 16 --method each --out {{new}}",
            "`each` does not fit box skills",
        ),
        (f"finetune {{tuned}} --task {TASK} --hidden 16", "is a finetuning run"),
        (f"finetune {{nowhere}} --task {TASK}", "nowhere does not exist"),
        ("finetune --resume {skills}", "is a pretrain run: continue it with `cic pretrain --resume"),
        ("pretrain --resume {nowhere}", "nowhere does not exist"),
        ("pretrain --resume {skills}", "is finished already"),
        ("finetune --resume {tuned}", "is finished already"),
        ("pretrain --resume {skills} --steps 7", "a resumed run keeps its settings; drop --steps 7"),
        ("pretrain --domain gridworld --out {skills}", "holds a run already"),
        ("evaluate", "Folder of a pre-training"),
        ("evaluate {nowhere}", "nowhere does not exist"),
        ("evaluate {file}", "file is a file"),
        ("evaluate {empty}", "config.json is missing"),
        ("evaluate {skills} --skill 0.1 0.2 0.3", "--skill has 3 numbers"),
        ("evaluate {skills} --episodes 0", "episodes must be at least 1"),
        ("evaluate {skills} --at 5", "no weights at step 5"),
        ("evaluate {skills} --seed -1", "seed"),
        ("skills {nowhere}", "nowhere does not exist"),
        ("skills {skills} --count 0", "count must be at least 1"),
        ("skills {skills} --choose all", "all"),
        ("envs walker", "takes no arguments"),
        ("objectives cic", "takes no arguments"),
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


def test_an_agent_without_skills_takes_none(tmp_path: Path, mistake: Callable[..., str]) -> None:
    path = cic.pretrain("gridworld", "rnd", out=tmp_path / "rnd", steps=20, **SMALL).path
    assert "no skills" in mistake("finetune", path, "--task", TASK, "--skill", "0.5", *TINY)
    assert "no skills" in mistake("evaluate", path, "--skill", "0.5")
    assert "no skills" in mistake("skills", path)


def test_skills_must_be_numbers(skills: Path, mistake: Callable[..., str]) -> None:
    assert "finite" in mistake("evaluate", skills, "--skill", "nan")
    assert "finite" in mistake("finetune", skills, "--task", TASK, "--skill", "inf", *TINY)


# ---- run folders that are not as they should be ----------------------------------------------------------------


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
    header["config"]["agent"]["hidden"] = 8
    (copied / "config.json").write_text(json.dumps(header))
    assert "do not fit its config" in mistake("evaluate", copied)


def test_a_config_changed_since_the_checkpoint(unfinished: Path, mistake: Callable[..., str]) -> None:
    header = json.loads((unfinished / "config.json").read_text())
    header["config"]["seed"] = 5
    (unfinished / "config.json").write_text(json.dumps(header))
    assert "was changed after" in mistake("pretrain", "--resume", unfinished)


def test_a_config_with_an_unknown_key(copied: Path, mistake: Callable[..., str]) -> None:
    header = json.loads((copied / "config.json").read_text())
    header["config"]["agent"]["hiden"] = 5
    (copied / "config.json").write_text(json.dumps(header))
    assert 'unknown field of config.agent "hiden"; did you mean "hidden"?' in mistake("evaluate", copied)


@pytest.mark.parametrize("line", ["evaluate {run}", "finetune {run} --task " + TASK + " --hidden 16", "skills {run}"])
def test_a_pickle_where_weights_are_expected_is_refused_and_never_loaded(
    copied: Path, line: str, mistake: Callable[..., str], tmp_path: Path
) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "sprung",)

    torch.save({"actor.trunk.0.weight": Trap()}, copied / "checkpoints" / "000000120" / "agent.safetensors")
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


def poisoned(update: Callable[..., Metrics], field: str, after: int) -> Callable[..., Metrics]:
    """The agent's update, with one field of its batch not a number from the `after`-th call on."""
    calls = 0

    def wrapped(self: Agent, batch: Batch, **options: Any) -> Metrics:
        nonlocal calls
        calls += 1
        if calls == after:
            batch = batch._replace(**{field: torch.full_like(getattr(batch, field), torch.nan)})
        return update(self, batch, **options)

    return wrapped


@pytest.mark.parametrize(
    ("field", "metric"), [("next_obs", "representation/loss"), ("action", "critic/loss"), ("discount", "critic/loss")]
)
@pytest.mark.parametrize("log_every", ["10", "1000"])
def test_nan_in_a_loss_stops_and_names_the_metric_the_step_and_the_last_good_checkpoint(
    field: str,
    metric: str,
    log_every: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mistake: Callable[..., str],
) -> None:
    path = tmp_path / "run"
    monkeypatch.setattr(Agent, "update", poisoned(Agent.update, field, 20))  # at step 40 + 2 · 20 = 80
    line = [
        "--domain",
        "gridworld",
        "--warmup",
        "40",
        "--steps",
        "200",
        "--checkpoint-every",
        "30",
        "--log-every",
        log_every,
    ]
    said = mistake("pretrain", *line, "--out", path, *TINY)
    assert said.startswith(f"{metric} became nan by step 8")
    assert "the last good checkpoint is that of step 60" in said
    status = json.loads((path / "status.json").read_text())
    assert status["state"] == "failed"
    assert metric in status["message"]
    assert [int(folder.name) for folder in Run(path).checkpoints()] == [30, 60]
    assert all(torch.isfinite(value).all() for value in cic.load(path).state_dict().values())
    monkeypatch.undo()
    assert cli.main(["pretrain", "--resume", str(path), "--quiet"]) == 0


def test_nan_in_finetuning_names_the_metric_too(
    skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: Callable[..., str]
) -> None:
    monkeypatch.setattr(Agent, "update", poisoned(Agent.update, "reward", 5))
    line = ["--task", TASK, "--warmup", "40", "--steps", "100", "--eval-every", "51", "--log-every", "1000"]
    said = mistake("finetune", skills, *line, "--out", tmp_path / "run", *TINY)
    assert said.startswith("critic/loss became nan by step 5")


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
    "writer", ["cic.runs.storage.save_arrays", "cic.runs.storage.LineLog.write", "cic.runs.storage.os.fsync"]
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
