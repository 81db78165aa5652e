"""Exact resume as a property: every script, interrupted at any steps, ends with the bytes of an uninterrupted run.

Hypothesis chooses the steps. An interruption raises an exception inside `env.step`, so the folder is left as a killed
process would leave it. `test_resume.py` kills real processes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from faults.folders import contents
from helpers import steady
from hypothesis import given, settings
from hypothesis import strategies as st

from cic import api
from cic.envs.gridworld import Gridworld

SMALL: dict[str, Any] = {
    "scale": "smoke",
    "hidden": 8,
    "batch": 8,
    "replay": 500,
    "log_every": 16,
    "checkpoint_every": 24,
    "quiet": True,
}
PRETRAIN: dict[str, Any] = SMALL | {
    "steps": 240,
    "warmup": 24,
    "skill_dim": 4,
    "skill_every": 5,
    "milestones": (60, 120),
    "library": 3,
    "library_starts": 2,
    "library_steps": 6,
}
FINETUNE: dict[str, Any] = SMALL | {
    "steps": 240,
    "warmup": 48,
    "eval_every": 60,
    "eval_episodes": 1,
    "prior_data": 0.5,
    "check_steps": 48,
    "trial_steps": 4,
}
TASK = "gridworld-reach_top_left"


class Killed(BaseException):
    """Stands for the end of the process."""


class StepsUntilDeath:
    """Counts steps of the environment and raises `Killed` after the given number of them."""

    def __init__(self, steps: int | None) -> None:
        self.left = steps
        self.taken = 0

    def __enter__(self) -> StepsUntilDeath:
        original = Gridworld.step

        def step(env: Gridworld, actions: Any) -> Any:
            self.taken += 1
            if self.left is not None and self.taken > self.left:
                raise Killed
            return original(env, actions)

        self._patch = mock.patch.object(Gridworld, "step", step)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


def interrupted(path: Path, start: Callable[[], Any], deaths: list[int]) -> None:
    """Start the run, kill it after each of these numbers of steps and resume it, until it is finished."""
    for steps in [*deaths, None]:
        with StepsUntilDeath(steps):
            try:
                if (path / "config.json").exists():
                    api.resume(path, quiet=True)
                else:
                    start()
            except Killed:
                continue
        return


class Scripts:
    """The uninterrupted run of each script and number of environments, made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempt = 0
        self._known: dict[tuple[str, int], tuple[Path, int]] = {}

    def start(self, script: str, num_envs: int, path: Path) -> Callable[[], Any]:
        if script == "pretrain":
            return lambda: api.pretrain("gridworld", out=path, num_envs=num_envs, **PRETRAIN)
        source = self.reference("pretrain", num_envs)[0]
        return lambda: api.finetune(source, TASK, out=path, num_envs=num_envs, search=script, **FINETUNE)

    def reference(self, script: str, num_envs: int) -> tuple[Path, int]:
        """Return the folder of the run and its number of environment steps."""
        key = script, num_envs
        if key not in self._known:
            path = self.folder / f"{script}-{num_envs}"
            start = self.start(script, num_envs, path)
            with StepsUntilDeath(None) as counter:
                start()
            self._known[key] = path, counter.taken
        return self._known[key]

    def check(self, script: str, num_envs: int, places: list[float]) -> None:
        reference, steps = self.reference(script, num_envs)
        self.attempt += 1
        path = self.folder / f"attempt-{self.attempt}"
        interrupted(path, self.start(script, num_envs, path), [int(place * steps) for place in places])
        got, expected = contents(path), contents(reference)
        assert got.keys() == expected.keys()
        assert [name for name in expected if got[name] != expected[name]] == []


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


SCRIPTS = ["pretrain", "library", "cma", "halving", "fixed"]
"""Pre-training with a library, and finetunings with each kind of search, relabelled data and a final comparison."""
PLACES = st.lists(st.floats(0, 1, allow_nan=False), min_size=1, max_size=3)


def check(scripts: Scripts, script: str, num_envs: int, examples: int) -> None:
    @settings(steady, max_examples=examples)
    @given(PLACES)
    def check_places(places: list[float]) -> None:
        scripts.check(script, num_envs, places)

    check_places()


@pytest.mark.parametrize(
    ("script", "num_envs"), [("pretrain", 8), ("pretrain", 1), ("library", 8), ("cma", 1), ("halving", 3), ("fixed", 3)]
)
@pytest.mark.usefixtures("short_regressions")
def test_interrupted_runs_end_with_the_same_bytes(scripts: Scripts, script: str, num_envs: int) -> None:
    check(scripts, script, num_envs, 2)


@pytest.mark.slow
@pytest.mark.parametrize("num_envs", [1, 3, 8])
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.usefixtures("short_regressions")
def test_interrupted_runs_end_with_the_same_bytes_wherever(scripts: Scripts, script: str, num_envs: int) -> None:
    check(scripts, script, num_envs, 40)
