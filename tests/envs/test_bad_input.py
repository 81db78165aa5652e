"""The user's mistakes: one clear sentence each, and nothing half done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cic.envs
from cic.core.errors import UserError


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wlaker", 'unknown environment "wlaker"; did you mean "walker" or "walker-'),
        ("walker-rnu", 'unknown task of walker "rnu"; did you mean "run"?'),
        ("jaco-reach_topleft", 'did you mean "reach_top_left"?'),
        ("quadruped-", "unknown task of quadruped"),
        ("", "unknown environment"),
        ("Hopper-v5", 'unknown environment "Hopper-v5"; did you mean "gymnasium:Hopper-v5"?'),
        ("Hopper-v5?frame_skip=2", 'did you mean "gymnasium:Hopper-v5?frame_skip=2"?'),
        ("gymnasium:Hopper-v5?frame_skip", '"?key=value&key=value", each key once; "frame_skip" is not'),
        ("gymnasium:Hopper-v5?no_such_thing=1", "failed with TypeError: "),
        ("cic/walker-fly-v0", 'unknown task of walker "fly"'),
        ("zzz", "the domains are walker, quadruped, jaco, point_mass, hopper, gridworld, ant, half_cheetah"),
        ("gymnasium:Hoper-v5", 'making "gymnasium:Hoper-v5" failed with NameNotFound'),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        cic.envs.make(name)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_environment_lists_the_near_ones() -> None:
    with pytest.raises(UserError) as error:
        cic.envs.make("walkr-run")
    assert 'did you mean "walker-run"' in str(error.value)
    assert "quadruped" not in str(error.value)


def test_a_name_must_be_a_string() -> None:
    with pytest.raises(UserError, match="must be a string, not None"):
        cic.envs.make(None)  # type: ignore[arg-type]


def test_names_of_all_kinds() -> None:
    assert cic.envs.split_name("walker-run") == cic.envs.split_name("cic/walker-run-v0") == ("walker", "run")
    assert cic.envs.split_name("point_mass") == ("point_mass", None)
    assert cic.envs.split_name("gymnasium:Hopper-v5") == ("gymnasium:Hopper-v5", None)
    assert cic.envs.domain_of("jaco-reach_top_left") == "jaco"


@pytest.mark.parametrize("num_envs", [0, -1, 1.5, True, "2", None])
@pytest.mark.parametrize("name", ["walker", "gridworld", "gymnasium:Pendulum-v1"])
def test_num_envs(name: str, num_envs: Any) -> None:
    with pytest.raises(UserError, match="num_envs must be a whole number of at least 1"):
        cic.envs.make(name, num_envs=num_envs)


@pytest.mark.parametrize("seed", [-1, 2**32 - 1, "x", 0.5, [1], None])
def test_seeds(seed: Any) -> None:
    with pytest.raises(UserError, match="seed must be"):
        cic.envs.make("walker", num_envs=2, seed=seed)


@pytest.mark.parametrize("threads", [0, -2, 1.5])
def test_threads(threads: Any) -> None:
    with pytest.raises(UserError, match="threads must be"):
        cic.envs.make("walker", num_envs=2, threads=threads)


@pytest.mark.parametrize("name", ["walker", "quadruped", "gridworld", "gymnasium:Pendulum-v1"])
@pytest.mark.parametrize("n", [1, 2])
def test_actions(name: str, n: int) -> None:
    env, untouched = cic.envs.make(name, n), cic.envs.make(name, n)
    env.reset(), untouched.reset()
    a = env.spaces.action
    for wrong in (np.zeros(a), np.zeros((n, a + 1)), np.zeros((n + 1, a)), np.zeros((n, a, 1)), 0.0, None):
        with pytest.raises(UserError, match="actions"):
            env.step(wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="actions must be numbers"):
        env.step([["x"] * a] * n)  # type: ignore[arg-type]
    for bad in (np.nan, np.inf, -np.inf):
        action = np.zeros((n, a), np.float32)
        action[-1, 0] = bad
        with pytest.raises(UserError, match=f"the action of environment {n - 1} is not finite"):
            env.step(action)
    good = np.full((n, a), 0.5, np.float32)
    np.testing.assert_array_equal(env.step(good)[0], untouched.step(good)[0])  # the failures left no trace


@pytest.mark.parametrize("name", ["point_mass-easy", "quadruped", "gymnasium:Pendulum-v1", "gridworld"])
def test_other_number_types_and_large_actions(name: str) -> None:
    env, same, clipped = (cic.envs.make(name) for _ in range(3))
    for e in (env, same, clipped):
        e.reset(seed=1)
    a = env.spaces.action
    np.testing.assert_array_equal(env.step(np.ones((1, a)))[0], same.step([[1] * a])[0])  # type: ignore[arg-type]
    large, full = np.full((1, a), 1e30, np.float32), np.ones((1, a), np.float32)
    clipped.step(full)
    for _ in range(3):
        got, expected = env.step(large), clipped.step(full)
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_array_equal(got[1], expected[1])


@pytest.mark.parametrize("name", ["walker", "gridworld", "gymnasium:Pendulum-v1"])
def test_stepping_what_is_not_running(name: str) -> None:
    env = cic.envs.make(name, 2)
    action = np.zeros((2, env.spaces.action), np.float32)
    with pytest.raises(UserError, match="was never reset"):
        env.step(action)
    env.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(UserError, match="environment 1 was never reset or its episode has ended"):
        env.step(action)
    env.reset()
    env.step(action)
    env.close()
    for use in (lambda: env.step(action), env.reset, env.render):
        with pytest.raises(UserError, match="is closed"):
            use()


def test_stepping_past_the_end() -> None:
    env = cic.envs.make("gridworld")
    env.reset()
    action = np.zeros((1, 2), np.float32)
    for _ in range(50):
        env.step(action)
    with pytest.raises(UserError, match=r"reset\(\)"):
        env.step(action)
    env.reset()
    env.step(action)


@pytest.mark.parametrize("mask", [[True], [1, 0], np.ones((2, 1), bool)])
def test_reset_masks(mask: Any) -> None:
    with pytest.raises(UserError, match="reset_mask must be 2 booleans"):
        cic.envs.make("walker", 2).reset(options={"reset_mask": mask})


def test_states_of_others() -> None:
    walker, hopper = cic.envs.make("walker", 2), cic.envs.make("hopper", 2)
    with pytest.raises(UserError, match="'physics' has shape"):
        hopper.restore(walker.state())
    with pytest.raises(UserError, match="has no 'random'"):
        walker.restore({k: v for k, v in walker.state().items() if k != "random"})
    with pytest.raises(UserError, match="has shape"):
        cic.envs.make("walker", 3).restore(walker.state())


@pytest.mark.parametrize("action", [0.0, 0.5])
@pytest.mark.parametrize("n", [1, 2])
def test_unstable_physics_is_not_passed_over(
    n: int, action: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo logs it into the current folder
    env = cic.envs.make("walker", n)
    env.reset()
    state = env.state()
    state["physics"][-1, 10:19] = 9e9  # the velocities
    env.restore(state)
    with pytest.raises(RuntimeError, match=f"walker: the simulation of environment {n - 1} became unstable"):
        env.step(np.full((n, 6), action, np.float32))
    state["physics"][-1, 1:10] = 1e11  # the positions
    with pytest.raises(UserError, match="its physics is unstable"):
        env.restore(state)
