"""Environments of the user's that misbehave: one message each, which names the environment, the step and the value."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict

import cic
from cic import cli
from cic.core.errors import UserError

SPACE = Box(-1.0, 1.0, (2,), np.float32)
OBS = np.zeros(2, np.float32)


class Plain(gymnasium.Env[Any, Any]):
    """Behaves well; the subclasses below change one thing."""

    observation_space: Any = SPACE
    action_space: Any = Box(-1.0, 1.0, (1,), np.float32)
    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.number, self.steps, self.resets = type(self).made, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.resets = 0, self.resets + 1
        return OBS, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.result(OBS, 0.0, False, self.steps == 20)

    def result(self, obs: Any, reward: Any, terminated: Any, truncated: Any) -> Any:
        late = self.steps == 3
        return (
            self.obs() if late else obs,
            self.reward() if late else reward,
            self.end() if late else terminated,
            truncated,
            {},
        )

    def obs(self) -> Any:
        return OBS

    def reward(self) -> Any:
        return 0.0

    def end(self) -> Any:
        return False


def returns(**values: Any) -> type[Plain]:
    """A class whose methods `obs`, `reward` or `end` return other values at step 3."""
    return type("Odd", (Plain,), {name: lambda self, value=value: value for name, value in values.items()})


class OtherSpaces(Plain):
    def __init__(self) -> None:
        super().__init__()
        if self.number % 2 == 0:
            self.action_space = Box(-2.0, 2.0, (1,), np.float32)


class ChangingSpaces(Plain):
    def reset(self, **options: Any) -> Any:
        found = super().reset(**options)
        if self.resets == 2:
            self.observation_space = Box(-5.0, 5.0, (2,), np.float32)
        return found


class Exits(Plain):
    def reward(self) -> Any:
        sys.exit(0)


class NoState(Plain):
    def get_state(self) -> Any:
        return [1, 2]

    def set_state(self, state: Any) -> None:
        pass


class TextState(NoState):
    def get_state(self) -> Any:
        return {"mode": "north"}


class NoSpaces(gymnasium.Env[Any, Any]):
    pass


class NoSeed(Plain):
    def reset(self) -> Any:  # type: ignore[override]
        return OBS, {}


def shared() -> Any:
    return ONE


ONE = Plain()
GRADIENT = torch.ones((), requires_grad=True)
KINDS: dict[str, tuple[Any, str]] = {
    "complex reward": (returns(reward=1 + 2j), "0, step 3: the reward must be one number, not a complex"),
    "reward with gradient": (returns(reward=GRADIENT), "0, step 3: the reward must be one number, not a Tensor: use"),
    "huge whole reward": (returns(reward=10**400), "0, step 3: the reward must be one number, not a int"),
    "end with gradient": (returns(end=GRADIENT), "0, step 3: terminated and truncated must be True or False, not a T"),
    "observation with gradient": (
        returns(obs=torch.ones(2, requires_grad=True)),
        "0, step 3: the observation must be an array of numbers, not a Tensor",
    ),
    "complex observation": (returns(obs=OBS + 1j), "0, step 3: the observation must be an array of numbers, not an ar"),
    "observation of objects": (returns(obs=[None, 1]), "0, step 3: the observation must be an array of numbers, not a"),
    "ragged observation": (returns(obs=[[1], [1, 2]]), "0, step 3: the observation must be an array of numbers, not a"),
    "empty observation": (returns(obs=np.zeros(0)), r"0, step 3: an observation of shape \(0,\) instead of \(2,\)"),
    "infinite observation": (returns(obs=OBS + np.inf), "the observation of environment 0 is not finite at step 3"),
    "empty space": (type("E", (Plain,), {"observation_space": Box(0, 1, (0,))}), "observation space has no entries"),
    "empty Dict": (type("E", (Plain,), {"observation_space": Dict({})}), "the observation space has no entries"),
    "empty actions": (type("E", (Plain,), {"action_space": Box(0, 1, (0,))}), "the action space has no entries"),
    "other spaces": (OtherSpaces, "environment 1, step 0: its action_space is now Box"),
    "changing spaces": (ChangingSpaces, "environment 0, step 0: its observation_space is now Box"),
    "no spaces": (NoSpaces, "the environment has no observation_space: set it in its constructor"),
    "exits": (Exits, r"0, step 3: its step\(\) failed with SystemExit: 0"),
    "state is a list": (
        NoState,
        r"its get_state\(\) failed with TypeError: it must return a dict of arrays, not a list",
    ),
    "state is text": (
        TextState,
        r"its get_state\(\) failed with TypeError: the entry 'mode' must be an array of numbe",
    ),
    "reset without seed": (NoSeed, r"its reset\(\) failed with TypeError: .*unexpected keyword argument 'seed'"),
    "same object twice": (shared, 'the factory of "odd" returned the same object twice'),
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_message(kind: str) -> None:
    factory, message = KINDS[kind]
    Plain.made = 0
    cic.register_env("odd", factory)
    with pytest.raises(UserError, match=message) as error:
        use(2)
    assert "\n" not in str(error.value)


def use(num_envs: int) -> None:
    env = cic.envs.make("odd", num_envs)
    for _ in range(2):
        env.reset()
        env.state()
        for _ in range(5):
            env.step(np.zeros((num_envs, 1), np.float32))


class RaisingClose(Plain):
    closed = 0

    def close(self) -> None:
        RaisingClose.closed += 1
        raise OSError("the connection is lost")


def test_a_raising_close_is_a_warning_and_the_others_are_closed() -> None:
    cic.register_env("odd", RaisingClose)
    env = cic.envs.make("odd", 2)
    with pytest.warns(UserWarning, match=r"its close\(\) failed with OSError: the connection is lost") as caught:
        env.close()
    assert (RaisingClose.closed, len(caught)) == (2, 2)


def test_the_command_line_prints_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cic.register_env("odd", returns(reward=1 + 2j))
    words = ["pretrain", "--domain", "odd", "--objective", "rnd", "--scale", "smoke", "--out", str(tmp_path / "run")]
    assert cli.main([*words, "--quiet"]) == 2
    printed = capsys.readouterr().err
    assert printed == "cic: odd: environment 0, step 3: the reward must be one number, not a complex\n"


class Fails(Plain):
    def step(self, action: Any) -> Any:
        return {}["no such key"]


def test_an_exception_names_the_line_and_the_traceback_is_available(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cic.register_env("odd", Fails)
    words = ["pretrain", "--domain", "odd", "--objective", "rnd", "--scale", "smoke", "--out", str(tmp_path / "run")]
    line = Fails.step.__code__.co_firstlineno + 1
    assert cli.main([*words, "--quiet"]) == 2
    printed = capsys.readouterr().err
    assert printed.endswith(f"its step() failed with KeyError: 'no such key' ({__file__}:{line})\n")
    assert "Traceback" not in printed
    monkeypatch.setenv("CIC_TRACEBACK", "1")
    assert cli.main([*words, "--quiet"]) == 2
    assert "Traceback" in capsys.readouterr().err


class Endless(Plain):
    def step(self, action: Any) -> Any:
        self.steps += 1
        return OBS, 1.0, False, False, {}


def test_episodes_that_never_end_are_stopped_in_evaluations(tmp_path: Path) -> None:
    cic.register_env("odd", Endless)
    settings: dict[str, Any] = {"steps": 40, "warmup": 10, "eval_every": 1000, "eval_episodes": 3, "hidden": 8}
    wanted = "odd: 3 of 3 evaluation episodes had not ended after 25 steps and were stopped: wrap the environment in"
    with pytest.warns(UserWarning, match=wanted):
        done = cic.finetune(None, "odd", scale="smoke", out=tmp_path / "r", eval_steps=25, quiet=True, **settings)
    assert done.result["return"] == 25


class Slow(Endless):
    def step(self, action: Any) -> Any:
        time.sleep(0.01)
        return super().step(action)


def test_a_whole_evaluation_has_a_time_limit(tmp_path: Path) -> None:
    cic.register_env("odd", Slow)
    settings: dict[str, Any] = {"steps": 20, "warmup": 10, "eval_every": 1000, "eval_episodes": 1, "hidden": 8}
    wanted = r"1 of 1 evaluation episodes had not ended after 0.3 s \(step \d+\) and were stopped: .* eval_timeout"
    with pytest.warns(UserWarning, match=wanted):
        done = cic.finetune(None, "odd", scale="smoke", out=tmp_path / "r", eval_timeout=0.3, quiet=True, **settings)
    assert 0 < done.result["return"] <= 31
    with pytest.warns(UserWarning, match=wanted):
        cic.evaluate(tmp_path / "r", episodes=1)


@pytest.mark.slow
def test_episodes_that_never_end_are_stopped_by_default(tmp_path: Path) -> None:
    cic.register_env("odd", Endless)
    settings: dict[str, Any] = {"steps": 40, "warmup": 10, "eval_every": 1000, "eval_episodes": 1, "hidden": 8}
    with pytest.warns(UserWarning, match="1 of 1 evaluation episodes had not ended after 10,000 steps"):
        cic.finetune(None, "odd", scale="smoke", out=tmp_path / "r", quiet=True, **settings)
    with pytest.warns(UserWarning, match="had not ended after 10,000 steps"):
        assert cic.evaluate(tmp_path / "r", episodes=1).returns == {"odd": [10_000]}


class Limited(Endless):
    spec = gymnasium.envs.registration.EnvSpec("limited-v0", max_episode_steps=40)

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:3], self.steps == 40, {})


def test_an_episode_may_be_as_long_as_its_environment_states(tmp_path: Path) -> None:
    cic.register_env("odd", Limited)
    settings: dict[str, Any] = {"steps": 20, "warmup": 10, "eval_every": 1000, "eval_episodes": 2, "hidden": 8}
    done = cic.finetune(None, "odd", scale="smoke", out=tmp_path / "r", eval_steps=25, quiet=True, **settings)
    assert done.result["return"] == 40


class HangsIn(Plain):
    """Hangs in one method, in the environment that the first evaluation makes."""

    method = ""

    def __init__(self) -> None:
        super().__init__()
        self.hang("make")

    def hang(self, method: str) -> None:
        if method == self.method and self.number == 2:
            time.sleep(60)

    def reset(self, **options: Any) -> Any:
        self.hang("reset")
        return super().reset(**options)

    def close(self) -> None:
        self.hang("close")


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs signals")
def test_the_time_limit_of_a_run_covers_its_later_evaluations(tmp_path: Path) -> None:
    HangsIn.method, HangsIn.made = "reset", 10
    cic.register_env("odd", HangsIn)
    settings: dict[str, Any] = {"steps": 20, "warmup": 10, "hidden": 8, "env_timeout": 0.3, "quiet": True}
    cic.pretrain("odd", "rnd", scale="smoke", out=tmp_path / "r", **settings)
    HangsIn.made = 1
    with pytest.raises(UserError, match=r"its reset\(\) has not returned for 0.3 s"):
        cic.evaluate(tmp_path / "r", episodes=1)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs signals")
@pytest.mark.parametrize(("method", "message"), [("make", "making odd has"), ("reset", r"its reset\(\) has")])
def test_the_time_limit_covers_evaluations(method: str, message: str, tmp_path: Path) -> None:
    HangsIn.method, HangsIn.made = method, 0
    cic.register_env("odd", HangsIn)
    settings: dict[str, Any] = {"steps": 20, "warmup": 10, "eval_every": 1000, "eval_episodes": 1, "hidden": 8}
    with pytest.raises(UserError, match=f"{message} not returned for 0.3 s"):
        cic.finetune(None, "odd", scale="smoke", out=tmp_path / "r", env_timeout=0.3, quiet=True, **settings)
