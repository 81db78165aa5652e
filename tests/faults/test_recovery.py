"""Resuming after a fault: result.json decides whether a run is finished, checkpoints restore everything else."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from safetensors.numpy import load_file

import cic
from cic import cli
from cic.core.errors import UserError
from cic.runs import folder as run_folder
from cic.runs.records import read_run
from cic.runs.storage import DiskError

from .folders import FINETUNE, finetune, newest, pretrain, stopped
from .odd_environment import register


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recovery")


@pytest.fixture(scope="module")
def skills(home: Path) -> Path:
    return pretrain(home / "skills")


@pytest.fixture(scope="module")
def tuned(home: Path, skills: Path) -> Path:
    return finetune(home / "tuned", skills)


def state_of(path: Path) -> str:
    return str(json.loads((path / "status.json").read_text())["state"])


# ---- small files ------------------------------------------------------------------------------------------


def test_run_killed_between_result_and_status_is_finished(tuned: Path, tmp_path: Path) -> None:
    path = shutil.copytree(tuned, tmp_path / "run")
    status = json.loads((path / "status.json").read_text())
    (path / "status.json").write_text(json.dumps(status | {"state": "running", "step": 12}))
    record = read_run(path)
    assert not isinstance(record, str)
    assert record.finished
    assert record.score == json.loads((tuned / "result.json").read_text())["return"]
    assert cic.resume(path, quiet=True).result == json.loads((tuned / "result.json").read_text())
    assert json.loads((path / "status.json").read_text())["step"] == FINETUNE["steps"]
    assert state_of(path) == "finished"
    with pytest.raises(UserError, match="is finished already"):
        cic.resume(path, quiet=True)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\x00\x00"])
def test_damaged_result_is_restored_from_the_checkpoint(tuned: Path, tmp_path: Path, content: str) -> None:
    path = shutil.copytree(tuned, tmp_path / "run")
    (path / "result.json").write_text(content)
    assert (cic.load(path).skill == cic.load(tuned).skill).all(), "trials.json contains the skill too"
    cic.resume(path, quiet=True)
    assert (path / "result.json").read_bytes() == (tuned / "result.json").read_bytes()
    assert state_of(path) == "finished"


def test_checkpoint_contains_the_chosen_skill(tuned: Path, tmp_path: Path) -> None:
    path = shutil.copytree(tuned, tmp_path / "run")
    (path / "result.json").write_text("{")
    (path / "trials.json").unlink()
    assert (cic.load(path).skill == cic.load(tuned).skill).all()


def test_inherited_weights_are_needed_only_before_the_first_checkpoint(tuned: Path, tmp_path: Path) -> None:
    path = stopped(tuned, tmp_path / "run")
    (path / "inherited" / "agent.safetensors").write_bytes(b"")
    assert cic.resume(path, quiet=True).result == json.loads((tuned / "result.json").read_text())
    fresh = stopped(tuned, tmp_path / "fresh")
    shutil.rmtree(fresh / "checkpoints")
    (fresh / "inherited" / "agent.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="start the finetuning again"):
        cic.resume(fresh, quiet=True)


def test_damaged_metrics_are_restored_bit_exactly(skills: Path, tmp_path: Path) -> None:
    path = stopped(skills, tmp_path / "run")
    metrics = path / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:50])
    with pytest.warns(UserWarning, match=r"metrics\.jsonl was lost or changed"):
        cic.resume(path, quiet=True)
    assert metrics.read_bytes() == (skills / "metrics.jsonl").read_bytes()


def test_resuming_an_intact_run_gives_no_warning(skills: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cic.resume(stopped(skills, tmp_path / "run"), quiet=True)


# ---- reading that fails ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["manifest.json", "replay.safetensors"])
def test_read_error_deletes_no_checkpoint(
    skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = shutil.copytree(skills, tmp_path / "run")
    (path / "result.json").unlink()
    last, original = newest(path), os.open

    def fail(file: Any, *args: Any, **kwargs: Any) -> int:
        if Path(file) == last / name:
            raise OSError(errno.EIO, "Input/output error", str(file))
        return original(file, *args, **kwargs)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(UserError, match=r"cannot be read: Input/output error"):
        cic.resume(path, quiet=True)
    monkeypatch.undo()
    assert cic.resume(path, quiet=True).result == json.loads((skills / "result.json").read_text())


# ---- writing that fails -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["write_folder", "write_json"])
def test_full_disk_at_the_start_does_not_suggest_to_resume(
    skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def fail(folder: Path, *_: Any) -> None:
        if point == "write_folder":
            raise DiskError(folder, "the disk is full")
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    monkeypatch.setattr(run_folder, point, fail)
    with pytest.raises(UserError, match="start again") as caught:
        finetune(tmp_path / "run", skills)
    assert "--resume" not in str(caught.value)
    monkeypatch.undo()
    assert finetune(tmp_path / "run", skills), "starting again works"


def test_read_only_folder_is_one_error(skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stopped(skills, tmp_path / "run")
    original = os.open

    def fail(file: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and str(file).startswith(str(path)):
            raise OSError(errno.EROFS, "Read-only file system", str(file))
        return original(file, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(UserError, match=r"cannot write to .*Read-only"):
        cic.resume(path, quiet=True)
    assert cic.load(path), "reading needs no writing"


# ---- settings that no machine can handle -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"replay": 10**12, "steps": 10**12}, r"a replay of 1,000,000,000,000 steps .* GB"),
        ({"replay": 10**12}, "a replay buffer of 1,000,000,000,000 steps does not fit"),
        ({"hidden": 60_000}, r"the networks [\d,.]+ GB"),
        ({"hidden": 10**9}, "hidden must be at most 65,536, not 1,000,000,000"),
        ({"batch": 10**6}, r"a batch of 1,000,000 [\d,.]+ GB"),
        ({"num_envs": 10**6}, "num_envs must be at most 10,000, not 1,000,000"),
        ({"threads": 10**12}, "threads must be at most 1,024"),
        ({"skill_dim": 10**10}, "skill_dim must be at most 65,536"),
        ({"ensemble": 10**6}, "ensemble must be at most 1,000"),
        ({"steps": 10**20}, "steps must be at most"),
        ({"milestones": (10**20,)}, "milestones must not exceed"),
        ({"env_timeout": -1.0}, "env_timeout must lie"),
        ({"seed": 2**31}, "seed must lie"),
    ],
)
def test_impossible_pretraining_is_refused_before_a_folder_is_made(
    tmp_path: Path, settings: dict[str, Any], word: str
) -> None:
    with pytest.raises(UserError, match=word):
        pretrain(tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("settings", [{"eval_episodes": 10**6}, {"trial_steps": 10**13}])
def test_impossible_finetuning_is_refused_before_a_folder_is_made(
    skills: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match="must be at most"):
        finetune(tmp_path / "run", skills, **settings)
    assert not (tmp_path / "run").exists()


# ---- environments that misbehave -------------------------------------------------------------------------------


@pytest.fixture
def odd(request: pytest.FixtureRequest) -> Any:
    register(request.param, at=7)
    yield "odd"
    cic.envs.registry._OWN.pop("odd")


@pytest.mark.parametrize("odd", ["huge", "huge reward"], indirect=True)
def test_values_too_large_for_float32_never_reach_a_checkpoint(odd: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"environment 0, step 7: .* is 3e\+3\d, larger than 1e\+09"):
        pretrain(tmp_path / "run", "rnd", odd, checkpoint_every=2)
    assert (tmp_path / "run" / "checkpoints").exists()
    for name, largest in (("obs", 9), ("reward", 1)):
        assert np.abs(load_file(newest(tmp_path / "run") / "replay.safetensors")[name]).max() <= largest


@pytest.mark.parametrize("odd", ["hangs"], indirect=True)
def test_environment_that_hangs_is_one_error(odd: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"0, step 7: its step\(\) has not returned for 0\.3 s \(`env_timeout`\)"):
        pretrain(tmp_path / "run", "rnd", odd, env_timeout=0.3)
    assert state_of(tmp_path / "run") == "failed"


SCRIPT = """
import sys
sys.path[:0] = {paths!r}
from faults.odd_environment import register
from faults.folders import pretrain
from pathlib import Path
register({how!r}, at=7)
pretrain(Path({path!r}), "rnd", "odd", env_timeout={timeout})
"""


def start(tmp_path: Path, how: str, timeout: float) -> subprocess.Popen[str]:
    """Start a run in another process, which the test signals or which ends itself."""
    paths = [str(Path(__file__).parents[1])]
    code = SCRIPT.format(paths=paths, how=how, path=str(tmp_path / "run"), timeout=timeout)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_environment_that_cannot_be_interrupted_ends_the_process(tmp_path: Path) -> None:
    child = start(tmp_path, "hangs and holds on", 0.5)
    _, output = child.communicate(timeout=120)
    assert child.returncode == 2
    assert "step 7: its step() has not returned for 0.5 s (`env_timeout`) and cannot be interrupted" in output


def test_second_signal_stops_a_step_that_hangs(tmp_path: Path) -> None:
    child = start(tmp_path, "hangs", 0)
    assert child.stdout is not None
    assert child.stderr is not None
    while child.stdout.readline() != "hangs\n":
        pass
    child.send_signal(signal.SIGTERM)
    while "SIGTERM: waiting for the current step" not in child.stderr.readline():
        pass
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    assert child.returncode != 0
    assert state_of(tmp_path / "run") == "failed"


# ---- environments without exact state --------------------------------------------------------------------------


def test_inexact_environment_stores_only_real_transitions(tmp_path: Path) -> None:
    """Pendulum is resumed four times. Every stored transition must obey its equations."""
    settings = {"steps": 90, "warmup": 200, "replay": 500, "checkpoint_every": 15, "log_every": 5}
    path = tmp_path / "run"
    killed = PendulumKilled(after=20)
    cic.register_env("pendulum-killed", lambda: killed.make())
    try:
        for _ in range(5):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    if (path / "config.json").exists():
                        cic.resume(path, quiet=True)
                    else:
                        pretrain(path, "rnd", "pendulum-killed", **settings)
                except UserError:
                    assert killed.steps == killed.after
        if not (path / "result.json").exists():
            killed.after = 10**6
            cic.resume(path, quiet=True)
    finally:
        cic.envs.registry._OWN.pop("pendulum-killed")
    assert killed.deaths >= 4
    replay = load_file(newest(path) / "replay.safetensors")
    obs, action, final = replay["obs"][0], replay["action"][0], replay["episode_end"][0]
    steps = np.flatnonzero(~final[:-1])
    expected = np.array([pendulum(obs[i], action[i]) for i in steps])
    np.testing.assert_allclose(obs[steps + 1], expected, atol=2e-4)
    rewards = replay["reward"][0]
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    returns = [line["zero_shot/reward"] for line in lines if "zero_shot/reward" in line]
    episodes = np.split(rewards, np.flatnonzero(final) + 1)
    assert all(min(episode.sum() for episode in episodes) - 1e-3 <= value for value in returns)


class PendulumKilled:
    """Pendulum-v1 with episodes of 12 steps, which fails after so many steps of a process's life."""

    def __init__(self, after: int) -> None:
        self.after, self.steps, self.deaths = after, 0, 0

    def make(self) -> Any:
        self.steps = 0
        outer = self

        class Mortal(gymnasium.Wrapper[Any, Any, Any, Any]):
            def step(self, action: Any) -> Any:
                if outer.steps == outer.after:
                    outer.deaths += 1
                    raise RuntimeError("killed")
                outer.steps += 1
                return self.env.step(action)

        return Mortal(gymnasium.make("Pendulum-v1", max_episode_steps=12))


def pendulum(obs: Any, action: Any) -> Any:
    """One step of Gymnasium's Pendulum-v1."""
    angle, speed, torque = np.arctan2(obs[1], obs[0]), obs[2], 2.0 * np.clip(action[0], -1, 1)
    speed = np.clip(speed + (15.0 * np.sin(angle) + 3.0 * torque) * 0.05, -8, 8)
    angle += speed * 0.05
    return [np.cos(angle), np.sin(angle), speed]


def test_command_reports_impossible_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["pretrain", "--domain", "gridworld", "--hidden", "60000", "--out", str(tmp_path / "run")])
    assert code == 2
    assert "GB of memory" in capsys.readouterr().err
