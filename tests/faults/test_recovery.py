"""What a fault leaves behind can be mended: one file decides, the others follow from it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import cic
from cic import cli
from cic.core.errors import UserError
from cic.runs import folder as run_folder
from cic.runs.folder import Inheritance, Run
from cic.runs.records import read_run
from cic.runs.storage import DiskError

from .folders import FINETUNE, finetune, newest, pretrain, stopped


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


# ---- one file decides ------------------------------------------------------------------------------------------


def test_killed_between_result_and_status_a_run_is_finished_by_resume(tuned: Path, tmp_path: Path) -> None:
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
def test_a_damaged_result_is_written_again_from_the_checkpoint(tuned: Path, tmp_path: Path, content: str) -> None:
    path = shutil.copytree(tuned, tmp_path / "run")
    (path / "result.json").write_text(content)
    assert (cic.load(path).skill == cic.load(tuned).skill).all(), "the trials have the skill too"
    cic.resume(path, quiet=True)
    assert (path / "result.json").read_bytes() == (tuned / "result.json").read_bytes()
    assert state_of(path) == "finished"


def test_without_result_and_trials_the_checkpoint_knows_the_skill(tuned: Path, tmp_path: Path) -> None:
    path = shutil.copytree(tuned, tmp_path / "run")
    (path / "result.json").write_text("{")
    (path / "trials.json").unlink()
    assert (cic.load(path).skill == cic.load(tuned).skill).all()


def test_damaged_inherited_weights_matter_only_before_the_first_checkpoint(tuned: Path, tmp_path: Path) -> None:
    path = stopped(tuned, tmp_path / "run")
    (path / "inherited" / "agent.safetensors").write_bytes(b"")
    assert cic.resume(path, quiet=True).result == json.loads((tuned / "result.json").read_text())
    fresh = stopped(tuned, tmp_path / "fresh")
    shutil.rmtree(fresh / "checkpoints")
    (fresh / "inherited" / "agent.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="start the finetuning again"):
        cic.resume(fresh, quiet=True)


@pytest.mark.parametrize("harm", ["cut", "zeroed", "deleted"])
def test_harmed_metrics_are_restored_to_the_bit(skills: Path, tmp_path: Path, harm: str) -> None:
    path = stopped(skills, tmp_path / "run")
    metrics = path / "metrics.jsonl"
    if harm == "deleted":
        metrics.unlink()
    else:
        metrics.write_bytes(metrics.read_bytes()[:50] if harm == "cut" else bytes(metrics.stat().st_size))
    with pytest.warns(UserWarning, match=r"metrics\.jsonl was lost or changed"):
        cic.resume(path, quiet=True)
    assert metrics.read_bytes() == (skills / "metrics.jsonl").read_bytes()


def test_undamaged_metrics_are_continued_without_a_word(skills: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cic.resume(stopped(skills, tmp_path / "run"), quiet=True)


# ---- nothing is deleted unread ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["manifest.json", "agent.safetensors", "replay.safetensors", "state.json"])
def test_a_read_error_deletes_no_checkpoint(
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


# ---- one creates, the other is told ----------------------------------------------------------------------------


def test_of_two_that_start_with_one_folder_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes while the first writes: the finished folder must not have the other's config."""
    said = []
    original = run_folder.write_folder

    def race(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        if not said:
            said.append("")
            with pytest.raises(UserError, match="another process is writing") as caught:
                Run.plan(tmp_path / "run", "finetune", {"seed": 2}).create({}, Inheritance({"w": torch.ones(1)}, {}))
            said.append(str(caught.value))

    monkeypatch.setattr(run_folder, "write_folder", race)
    Run.plan(tmp_path / "run", "finetune", {"seed": 1}).create({}, Inheritance({"w": torch.zeros(1)}, {}))
    assert len(said) == 2
    assert Run(tmp_path / "run").config == {"seed": 1}
    assert Run(tmp_path / "run").inherited().weights["w"].tolist() == [0]


@pytest.mark.parametrize("point", ["write_folder", "write_json"])
def test_a_full_disk_at_the_start_advises_no_resume(
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
    assert finetune(tmp_path / "run", skills), "which is then possible"


def test_a_folder_that_is_read_only_is_refused_with_a_sentence(
    skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# ---- settings that no machine can meet -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"replay": 10**12, "steps": 10**12}, r"a replay of 1,000,000,000,000 steps .* GB"),
        ({"replay": 10**12}, "a replay of 1,000,000,000,000 steps does not fit"),
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
def test_what_no_machine_can_do_is_refused_before_a_folder_is_made(
    tmp_path: Path, settings: dict[str, Any], word: str
) -> None:
    with pytest.raises(UserError, match=word):
        pretrain(tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("settings", [{"eval_episodes": 10**6}, {"trial_steps": 10**13}])
def test_a_finetuning_that_cannot_be_is_refused_before_a_folder_is_made(
    skills: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match="must be at most"):
        finetune(tmp_path / "run", skills, **settings)
    assert not (tmp_path / "run").exists()


# ---- environments that misbehave -------------------------------------------------------------------------------


class Odd(gymnasium.Env[Any, Any]):
    """Fine, until its seventh step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, how: str) -> None:
        self.how, self.count = how, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        odd = self.count == 7
        if odd and self.how == "hangs":
            print("hangs", flush=True)
            time.sleep(100)
        if odd and self.how == "hangs and holds on":
            while True:
                try:
                    time.sleep(100)
                except Exception:
                    continue
        obs = np.array([3e38 if odd and self.how == "huge" else 0.1 * self.count, 0.0])
        return obs, 3e30 if odd and self.how == "dear" else 1.0, False, self.count % 10 == 0, {}


@pytest.fixture
def odd(request: pytest.FixtureRequest) -> Any:
    name = f"odd-{request.param}".replace(" ", "-")
    cic.register_env(name, lambda: Odd(request.param))
    yield name
    cic.envs.registry._OWN.pop(name)


@pytest.mark.parametrize("odd", ["huge", "dear"], indirect=True)
def test_numbers_that_float32_cannot_bear_never_reach_a_checkpoint(odd: str, tmp_path: Path) -> None:
    """In the warm-up they were stored, and the first update then poisoned what was called the last good checkpoint."""
    with pytest.raises(UserError, match=r"environment 0, step 7: .* is 3e\+3\d, larger than 1e\+09"):
        pretrain(tmp_path / "run", "rnd", odd, checkpoint_every=2)
    assert (tmp_path / "run" / "checkpoints").exists()
    for name in ("obs", "reward"):
        assert np.abs(load_file(newest(tmp_path / "run") / "replay.safetensors")[name]).max() <= 1


@pytest.mark.parametrize("odd", ["hangs"], indirect=True)
def test_a_hung_environment_ends_the_run_with_a_sentence(odd: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(
        UserError, match=r"environment 0, step 7: its step\(\) has not returned for 0\.3 s \(--env-timeout\)"
    ):
        pretrain(tmp_path / "run", "rnd", odd, env_timeout=0.3)
    assert time.monotonic() - began < 20
    assert state_of(tmp_path / "run") == "failed"


SCRIPT = """
import sys, time
sys.path[:0] = {paths!r}
import cic
from faults.test_recovery import Odd
from faults.folders import pretrain
from pathlib import Path
cic.envs.register_env("odd", lambda: Odd({how!r}))
pretrain(Path({path!r}), "rnd", "odd", env_timeout={timeout})
"""


def start(tmp_path: Path, how: str, timeout: float) -> subprocess.Popen[str]:
    """In a process of its own: it is signalled, or ends hard."""
    paths = [str(Path(__file__).parents[1])]
    code = SCRIPT.format(paths=paths, how=how, path=str(tmp_path / "run"), timeout=timeout)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_an_environment_that_cannot_be_interrupted_ends_the_process_with_a_sentence(tmp_path: Path) -> None:
    child = start(tmp_path, "hangs and holds on", 0.5)
    _, said = child.communicate(timeout=120)
    assert child.returncode == 2
    assert "step 7: its step() has not returned for 0.5 s (--env-timeout) and cannot be interrupted" in said


def test_a_signal_during_a_hung_step_is_answered_and_a_second_stops(tmp_path: Path) -> None:
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


def test_pendulum_resumed_four_times_stores_no_transition_that_never_happened(tmp_path: Path) -> None:
    """Its physics says from an observation and an action what comes next: every stored step must obey it."""
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


def test_the_command_says_what_a_traceback_would_hide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["pretrain", "--domain", "gridworld", "--hidden", "60000", "--out", str(tmp_path / "run")])
    assert code == 2
    assert "GB of memory" in capsys.readouterr().err
