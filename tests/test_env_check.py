"""`cic.check_env` and `cic check-env`: each check finds the flaw that it is for, and nothing else."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import cic
from cic import cli
from cic.core.errors import UserError
from cic.training.env_check import EnvCheck, Finding


class Sound(gymnasium.Env[Any, Any]):
    """A point with two velocities. Its flaws are attributes."""

    action_space = Box(-2.0, 2.0, (2,), np.float32)
    observation_space: Any = Box(-50.0, 50.0, (2,), np.float32)
    factor = np.ones(2)
    noise = 0.0
    length = 50
    delay = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.count = self.np_random.uniform(-1, 1, 2), 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        time.sleep(self.delay)
        self.place = np.clip(self.place + 0.1 * action, -5, 5)
        self.place += self.noise * np.random.default_rng().normal(size=2)
        self.count += 1
        return self.observation(), self.reward(action), False, self.count == self.length, {}

    def observation(self) -> Any:
        return (self.place * self.factor).astype(np.float32)

    def reward(self, action: Any) -> float:
        return float(np.tanh(self.place[0]))

    def get_state(self) -> Any:
        return {"place": self.place, "count": self.count}

    def set_state(self, state: Any) -> None:
        self.place, self.count = state["place"], int(state["count"])


class Forgetful(Sound):
    """Its state lacks the position."""

    def get_state(self) -> Any:
        return {"count": self.count}

    def set_state(self, state: Any) -> None:
        self.count = int(state["count"])


class Hidden(Sound):
    """The reward does not depend on what is observed."""

    def reward(self, action: Any) -> float:
        return float(self.np_random.normal())


class NotFinite(Sound):
    def observation(self) -> Any:
        return np.full(2, np.nan) if self.count == 30 else super().observation()


def variant(**attributes: Any) -> type[Sound]:
    return type("Variant", (Sound,), attributes)


def checked(env: Any, steps: int = 300) -> EnvCheck:
    cic.register_env("checked", env)
    return cic.check_env("checked", steps=steps)


def slow_machine_allowed(found: EnvCheck, wanted: str = "") -> list[Finding]:
    """The warnings, without that of the speed unless it is the one that is tested."""
    return [one for one in found.warnings if one.check != "speed" or wanted == "speed"]


def test_a_sound_environment_has_no_warnings() -> None:
    found = checked(Sound, 600)
    assert found.ok
    assert slow_machine_allowed(found) == []
    texts = {finding.check: finding.text for finding in found.findings}
    assert texts["spaces"] == "2 numbers observed, 2 continuous actions in [-2, 2]"
    assert texts["episodes"] == "mean length 50 steps (0 terminated, 12 truncated)"
    assert texts["determinism"] == "the same seed and actions give the same 200 steps"
    assert texts["resume"] == "a restored state continues bit-exactly"
    assert texts["reward"].endswith("100% not zero; a regression on (s, a, s') explains 100% of it")


@pytest.mark.parametrize(
    ("env", "check", "text"),
    [
        (variant(observation_space=Box(-1, 0.5, (2,))), "bounds", "outside of its bounds -1 to 0.5: correct the"),
        (variant(factor=np.array([1, 1e4]), observation_space=Box(-1e5, 1e5, (2,))), "scale", "entry 1 varies by"),
        (variant(factor=np.array([1e-5, 1e-5])), "scale", "divide entries by their typical size"),
        (variant(factor=np.array([1, 0])), "constant entries", "never changed: entry 1"),
        (variant(length=10**9), "episodes", "no episode ended in 300 steps: wrap the environment in gymnasium."),
        (variant(noise=1e-3), "determinism", "the same seed and actions give another result at step 1: draw"),
        (Forgetful, "resume", "a restored state continues differently: get_state() lacks a part of the state"),
        (Hidden, "reward", "if it depends on a hidden state, finetune with `prior_data=0`"),
        (variant(reward=lambda self, action: 3.0), "reward", "always 3 with random actions"),
        (variant(delay=0.002), "speed", "`num_envs=8` and `workers="),
    ],
)
def test_each_flaw_is_found(env: Any, check: str, text: str) -> None:
    found = checked(env, 600 if check == "reward" else 300)
    assert found.ok
    also = {"determinism": "resume"}.get(check)
    (warning,) = [one for one in slow_machine_allowed(found, check) if one.check != also]
    assert warning.check == check
    assert text in warning.text


@pytest.mark.parametrize(
    ("env", "check", "text"),
    [
        (NotFinite, "values", "checked: the observation of environment 0 is not finite at step 30"),
        (variant(factor=np.zeros(2)), "scale", "no entry of the observation ever changed"),
        (lambda: 1 / 0, "spaces", 'making "checked" failed with ZeroDivisionError'),
        (variant(observation_space=None), "spaces", "the environment has no observation_space"),
    ],
)
def test_errors_are_findings(env: Any, check: str, text: str) -> None:
    found = checked(env, 100)
    (error,) = [one for one in found.findings if one.level == "error"]
    assert not found.ok
    assert error.check == check
    assert text in error.text


def test_built_in_and_discrete_environments() -> None:
    assert slow_machine_allowed(cic.check_env("gridworld", steps=100)) == []
    found = cic.check_env("gymnasium:CartPole-v1", steps=100)
    assert found.findings[0].text == "4 numbers observed, discrete actions with 2 choices"


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    cic.register_env("checked", Hidden)
    assert cli.main(["check-env", "checked", "--steps", "600"]) == 0
    shown = capsys.readouterr().out
    assert "reward       warning\n" in shown
    assert "finetune with --prior-data 0\n" in shown
    cic.register_env("checked", NotFinite)
    assert cli.main(["check-env", "checked", "--steps", "100"]) == 1
    assert "values: checked: the observation of environment 0 is not finite at step 30\n" in capsys.readouterr().out
    assert cli.main(["check-env", "chekced"]) == 2
    with pytest.raises(UserError, match="steps must be at least 1"):
        cic.check_env("checked", steps=0)
