"""Environments in several processes: the same bits as in one process, exact resume, and one message for a crash."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict

import cic
from cic import cli
from cic.core.errors import UserError

ACTION = Box(np.array([0, -4], np.float32), np.array([2, 4], np.float32))


class Walk(gymnasium.Env[Any, Any]):
    """A random walk with a state of its own."""

    observation_space = Dict(place=Box(-np.inf, np.inf, (2,)), clock=Box(0, 100, (1,)))
    action_space = ACTION

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.place, self.clock = fails, np.zeros(2), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.clock = self.np_random.normal(size=2), 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        self.clock += 1
        self.place = self.place + action + self.np_random.normal(size=2)
        if self.fails and self.clock == 4:
            raise RuntimeError("out of fuel")
        print("a line that must not disturb the pipe")
        return self.observation(), float(self.place[0]), self.clock > 9 and self.place[0] > 5, self.clock == 15, {}

    def observation(self) -> Any:
        return {"place": self.place.astype(np.float32), "clock": np.array([self.clock], np.float32)}

    def get_state(self) -> Any:
        return {"place": self.place, "clock": self.clock}

    def set_state(self, state: Any) -> None:
        self.place, self.clock = state["place"], int(state["clock"])


def play(env: Any, steps: int, seed: int) -> list[Any]:
    """All arrays of some steps with resets."""
    rng, seen = np.random.default_rng(seed), []
    for _ in range(steps):
        found = env.step(rng.uniform(-1, 1, (env.num_envs, 2)).astype(np.float32))
        seen += list(found[:4])
        done = found.terminated | found.truncated
        if done.any():
            seen.append(env.reset(options={"reset_mask": done})[0])
    return seen


def same(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_workers_give_the_same_bits_and_states() -> None:
    cic.register_env("walk", Walk)
    one, many = cic.envs.make("walk", 5, seed=3), cic.envs.make("walk", 5, seed=3, workers=2)
    try:
        assert (many.spaces, many.layout, many.exact_state) == (one.spaces, one.layout, True)
        assert many.entry_names() == one.entry_names() == ["place[0]", "place[1]", "clock[0]"]
        same([one.reset()[0]], [many.reset()[0]])
        same(play(one, 40, 0), play(many, 40, 0))
        saved, other = one.state(), many.state()
        assert saved.keys() == other.keys()
        same([saved[key] for key in sorted(saved)], [other[key] for key in sorted(other)])
        expected = play(one, 30, 1)
        play(many, 7, 5)
        many.restore(saved)
        same(play(many, 30, 1), expected)
        same([one.reset(seed=9)[0]], [many.reset(seed=9)[0]])
        with pytest.raises(UserError, match=r"actions have shape \(4, 2\)"):
            many.step(np.zeros((4, 2), np.float32))
        with pytest.raises(UserError, match="'steps' has shape"):
            many.restore(cic.envs.make("walk", 4).state())
    finally:
        many.close()
    with pytest.raises(UserError, match="is closed"):
        many.reset()


SETTINGS: dict[str, Any] = {
    "scale": "smoke",
    "num_envs": 4,
    "steps": 240,
    "warmup": 40,
    "hidden": 8,
    "batch": 8,
    "replay": 400,
    "log_every": 40,
    "checkpoint_every": 80,
    "quiet": True,
}


def files(path: Path) -> list[bytes]:
    """What must be the same with any number of workers."""
    newest = sorted((path / "checkpoints").iterdir())[-1]
    return [file.read_bytes() for file in (path / "metrics.jsonl", *sorted(newest.glob("*.safetensors")))]


def test_a_crash_is_one_message_and_the_run_resumes_bit_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process with environments 2 and 3 is killed from outside in the middle of the run."""
    cic.register_env("walk", Walk)
    whole = cic.pretrain("walk", "rnd", out=tmp_path / "whole", **SETTINGS).path
    from cic.envs.workers import WorkerEnv

    step, count = WorkerEnv.step, iter(range(1000))

    def killing(self: Any, actions: Any) -> Any:
        if next(count) == 45:
            self._workers[1]._process.kill()
        return step(self, actions)

    monkeypatch.setattr(WorkerEnv, "step", killing)
    message = r"walk: the worker process of environments 2 to 3 ended with signal SIGKILL: the simulator crashed"
    with pytest.raises(UserError, match=message):
        cic.pretrain("walk", "rnd", out=tmp_path / "run", workers=2, **SETTINGS)
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "failed"
    assert [folder.name for folder in sorted((tmp_path / "run" / "checkpoints").iterdir())] == [
        "000000080",
        "000000160",
    ]
    resumed = cic.resume(tmp_path / "run", quiet=True).path
    assert files(resumed) == files(whole)


def test_errors_of_the_first_environment_are_reported() -> None:
    cic.register_env("walk", lambda: Walk(fails=True))
    message = r"walk: environment 0, step 4: its step\(\) failed with RuntimeError: out of fuel"
    env = cic.envs.make("walk", 4, workers=2)
    try:
        env.reset()
        for _ in range(3):
            env.step(np.ones((4, 2), np.float32))
        with pytest.raises(UserError, match=message) as error:
            env.step(np.ones((4, 2), np.float32))
        assert "\n" not in str(error.value)
    finally:
        env.close()


def test_numbers_of_workers() -> None:
    cic.register_env("walk", Walk)
    with pytest.raises(UserError, match=r"workers must be at least 1 and at most num_envs \(2\), not 3"):
        cic.envs.make("walk", 2, workers=3)
    with pytest.raises(UserError, match="walker is built in"):
        cic.envs.make("walker", 2, workers=2)
    with pytest.raises(UserError, match=r"workers must lie in \[0, num_envs\], not at 2"):
        cic.pretrain("walk", "rnd", scale="smoke", num_envs=1, workers=2)


def test_a_factory_that_cannot_be_sent() -> None:
    lock = threading.Lock()
    cic.register_env("walk", lambda: (lock, Walk())[1])
    with pytest.raises(UserError, match='workers need a factory of "walk" that can be sent to another process'):
        cic.envs.make("walk", 2, workers=1)


SCRIPT = """
import gymnasium, numpy as np, cic
class Pole(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,)); action_space = gymnasium.spaces.Box(-1, 1, (1,))
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}
    def step(self, action):
        return np.asarray(action), 1.0, False, False, {}
cic.register_env("pole", Pole)
print("script")
env = cic.envs.make("pole", 2, workers=2)
print(env.reset(seed=4)[0].round(3).tolist())
"""


@pytest.mark.slow
def test_a_script_without_a_main_guard(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    expected = [[round(float(np.random.default_rng(seed).uniform(-1, 1)), 3)] for seed in (4, 5)]
    lines = done.stdout.splitlines()
    assert lines[0] == "script", done.stderr
    np.testing.assert_allclose(json.loads(lines[1]), expected, atol=1e-3)
    assert done.returncode == 0


@pytest.mark.slow
def test_the_command_with_an_imported_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "poles.py").write_text(SCRIPT.partition('print("script")')[0])
    words = ["pretrain", "--domain", "pole", "--import", str(tmp_path / "poles.py"), "--objective", "rnd"]
    words += ["--scale", "smoke", "--num-envs", "2", "--workers", "2", "--steps", "80", "--out", str(tmp_path / "run")]
    assert cli.main([*words, "--quiet"]) == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["workers"] == 2
