"""Environments that are not ours."""

from __future__ import annotations

from typing import Any

import ground_truth
import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.spaces import Box, Dict, Text, Tuple

import cic.envs
from cic.core.errors import UserError

REWARDS: dict[str, Any] = {"array reward": np.ones(1), "text reward": "much", "no reward": None}
RESULTS: dict[str, Any] = {
    "four": (0, 0, 0, {}),
    "dict": {"obs": 0},
    "nothing": None,
    "ends": (0, 0.0, "no", False, {}),
}


class Toy(gymnasium.Env[Any, Any]):
    """Remembers its actions; `flaw` makes it misbehave at the third step."""

    def __init__(self, flaw: str = "", action_space: Any = None, observation_space: Any = None) -> None:
        self.flaw = flaw
        self.action_space = action_space or Box(np.array([0.0, -4.0]), np.array([2.0, 4.0]), dtype=np.float64)
        self.observation_space = observation_space or Dict(
            {"b": Box(-np.inf, np.inf, (2,)), "a": Tuple((Box(-1, 1, (2, 1)), Box(0, 255, (1,), np.uint8)))}
        )
        self.actions: list[Any] = []
        self.closed = False

    def _obs(self) -> Any:
        t = len(self.actions)
        b = np.array([t, self.start], np.float64)
        if t == 3 and self.flaw == "nan":
            b[0] = np.nan
        if t == 3 and self.flaw == "shape":
            b = np.zeros(3)
        if t == 3 and self.flaw == "text":
            return {"b": "north", "a": (np.zeros((2, 1)), np.zeros(1))}
        if t == 3 and self.flaw == "missing":
            return {"b": b}
        return {"b": b, "a": (np.array([[0.25], [0.5]], np.float32), np.array([9], np.uint8))}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.actions, self.start = [], float(self.np_random.integers(1000))
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        t = len(self.actions)
        if t == 3 and self.flaw == "raise":
            raise KeyError("no\nsuch key")
        if t == 3 and self.flaw in RESULTS:
            return RESULTS[self.flaw]
        reward = np.inf if t == 3 and self.flaw == "reward" else REWARDS.get(self.flaw, float(t))
        return self._obs(), reward, t == 5 and self.start % 2 == 0, t == 5 and self.start % 2 == 1, {}

    def close(self) -> None:
        self.closed = True


def make(num_envs: int = 1, seed: int = 0, **toy: Any) -> Any:
    cic.envs.register_env("toy", lambda: Toy(**toy))
    return cic.envs.make("toy", num_envs, seed)


def test_observations_are_flattened_and_actions_stretched() -> None:
    env = make(2)
    assert (env.spaces.obs, env.spaces.action, env.episode_length, env.tasks, env.task) == (5, 2, None, (), None)
    obs, _ = env.reset()
    assert obs.dtype == np.float32
    starts = [e.start for e in env._envs]
    np.testing.assert_array_equal(obs, [[0.25, 0.5, 9, 0, starts[0]], [0.25, 0.5, 9, 0, starts[1]]])  # sorted keys
    assert starts == [float(np.random.default_rng(seed).integers(1000)) for seed in (0, 1)]
    env.step(np.array([[-1, -1], [1, 1]], np.float32))
    env.step(np.array([[0, 0.5], [3, -3]], np.float32))
    np.testing.assert_allclose(env._envs[0].actions, [[0, -4], [1, 2]])
    np.testing.assert_allclose(env._envs[1].actions, [[2, 4], [2, -4]])  # beyond the range is clipped
    assert env._envs[0].actions[0].dtype == np.float64
    env.close()
    assert all(e.closed for e in env._envs)


def test_terminated_and_truncated_stay_apart() -> None:
    env = make(6)
    env.reset()
    even = np.array([e.start % 2 == 0 for e in env._envs])
    assert 0 < even.sum() < 6
    for _ in range(5):
        obs, reward, terminated, truncated, _ = env.step(np.zeros((6, 2), np.float32))
    np.testing.assert_array_equal(terminated, even)
    np.testing.assert_array_equal(truncated, ~even)
    np.testing.assert_array_equal(reward, np.full(6, 5, np.float32))
    with pytest.raises(UserError, match="has ended"):
        env.step(np.zeros((6, 2), np.float32))
    after, _ = env.reset(options={"reset_mask": terminated})
    np.testing.assert_array_equal(after[truncated], obs[truncated])
    assert (after[terminated][:, 3] == 0).all()


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        ("nan", "toy: the observation of environment 0 is not finite at step 3"),
        ("shape", r"toy: environment 0, step 3: an observation of 'b' of shape \(3,\) instead of \(2,\)"),
        ("missing", "toy: environment 0, step 3: the observation lacks the entry 'a' of its space"),
        ("reward", "toy: the reward of environment 0 is not finite"),
        (
            "raise",
            r"toy: environment 0, step 3: its step\(\) failed with KeyError: 'no\\nsuch key' \(.*test_gym\.py:\d+\)$",
        ),
        (
            "four",
            r"0, step 3: step\(\) must return \(obs, reward, terminated, truncated, info\), not a tuple of 4",
        ),
        ("dict", "truncated, info\\), not a dict"),
        ("nothing", "truncated, info\\), not a NoneType"),
        ("ends", "terminated and truncated must be True or False, not a str"),
        ("text", "environment 0, step 3: the observation must be an array of numbers, not a str"),
    ],
)
def test_flaws_that_show_mid_episode(flaw: str, message: str) -> None:
    env = make(2, flaw=flaw)
    env.reset()
    action = np.zeros((2, 2), np.float32)
    env.step(action), env.step(action)
    with pytest.raises(UserError, match=message):
        env.step(action)


@pytest.mark.parametrize("flaw", REWARDS)
def test_rewards_that_are_not_one_number(flaw: str) -> None:
    env = make(1, flaw=flaw)
    env.reset()
    with pytest.raises(UserError, match="toy: environment 0, step 1: the reward must be one number, not a"):
        env.step(np.zeros((1, 2), np.float32))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.zeros(2), r"reset\(\) must return \(obs, info\), not an array of shape \(2,\)"),
        (None, r"reset\(\) must return \(obs, info\), not a NoneType"),
        (OSError("no display"), r"its reset\(\) failed with OSError: no display"),
    ],
)
def test_resets_that_fail(result: Any, message: str) -> None:
    class Unready(Toy):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            if isinstance(result, Exception):
                raise result
            return result

    cic.envs.register_env("unready", Unready)
    with pytest.raises(UserError, match=f"unready: environment 0, step 0: {message}"):
        cic.envs.make("unready").reset()


@pytest.mark.parametrize(
    ("spaces", "message"),
    [
        ({"action_space": Text(3)}, "actions must be Box, Discrete, MultiDiscrete or MultiBinary, not Text"),
        ({"action_space": Box(-np.inf, np.inf, (2,))}, "the action space must be bounded"),
        ({"observation_space": Text(3)}, "observations must be Box, Discrete, MultiDiscrete or MultiBinary, or a Dict"),
        ({"observation_space": Dict({"x": Text(3)})}, r"no key of the Dict observation can be used: x \(Text\); add"),
        ({"observation_space": Tuple([Text(3)])}, "not Text"),
    ],
)
def test_spaces_that_do_not_fit(spaces: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(**spaces)


def test_discrete_actions_of_gymnasium() -> None:
    env = cic.envs.make("gymnasium:CartPole-v1", num_envs=2)
    env.reset(seed=0)
    assert env.spaces.choices == (2,)
    step = env.step(np.eye(2, dtype=np.float32))
    assert step.obs[0, 1] < 0 < step.obs[1, 1], "pushed to the left and to the right"


def broken() -> Any:
    raise OSError("no such file")


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (broken, 'making "own" failed with OSError: no such file'),
        (lambda: None, 'the factory of "own" must return a gymnasium.Env or a dm_env.Environment'),
        (lambda x: x, 'making "own" failed with TypeError'),
        (Toy, None),
    ],
)
def test_factories(factory: Any, message: str | None) -> None:
    cic.envs.register_env("own", factory)
    if message is None:
        assert cic.envs.make("own").spaces.obs == 5
        return
    with pytest.raises(UserError, match=message):
        cic.envs.make("own", num_envs=2)


@pytest.mark.parametrize("name", ["walker", "walker-run", "gymnasium:x", "", None])
def test_names_that_are_taken(name: Any) -> None:
    with pytest.raises(UserError, match="cannot be the name of your own environment"):
        cic.envs.register_env(name, Toy)


def test_a_factory_must_be_callable() -> None:
    with pytest.raises(UserError, match="needs a function without arguments"):
        cic.envs.register_env("own", Toy())  # type: ignore[arg-type]


def rollout(env: Any, actions: Any) -> list[Any]:
    seen: list[Any] = []
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        seen += [obs, reward, terminated, truncated]
        over = terminated | truncated
        if over.any():
            seen.append(env.reset(options={"reset_mask": over})[0])
    return seen


@pytest.mark.parametrize("name", ["gymnasium:Hopper-v5", "gymnasium:Ant-v5", "gymnasium:Humanoid-v5"])
def test_gymnasium_mujoco_continues_bit_for_bit(name: str) -> None:
    env, other = cic.envs.make(name, 2, seed=5), cic.envs.make(name, 2, seed=99)
    assert env.exact_state
    env.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (90, 2, env.spaces.action)).astype(np.float32)
    rollout(env, actions[:30])
    other.restore(env.state())
    for a, b in zip(rollout(env, actions[30:]), rollout(other, actions[30:]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_gymnasium_arguments() -> None:
    env = cic.envs.make(
        "gymnasium:Hopper-v5?healthy_reward=0.5&healthy_z_range=(0.1, 9.0)&terminate_when_unhealthy=False"
    )
    inner: Any = env._envs[0].unwrapped  # type: ignore[attr-defined]
    assert (inner._healthy_reward, inner._healthy_z_range, inner._terminate_when_unhealthy) == (0.5, (0.1, 9.0), False)
    assert env.exact_state
    assert cic.envs.split_name(env.name) == (env.name, None)
    assert cic.envs.make("gymnasium:Pendulum-v1?render_mode=rgb_array")._envs[0].render_mode == "rgb_array"  # type: ignore[attr-defined]


class Remembers(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps its last reward, and says so."""

    last = 0.0

    def step(self, action: Any) -> Any:
        obs, reward, *rest = self.env.step(action)
        total, self.last = float(reward) + self.last, float(reward)
        return obs, total, *rest

    def get_state(self) -> dict[str, Any]:
        return {"last": np.array(self.last)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.last = float(state["last"])


class Hurried(wrappers.ClipReward):
    """A subclass may keep more than its base."""


class OwnHopper(HopperEnv):
    """A MuJoCo environment of the user's may keep more than its physics."""


WRAPPED = {
    "normalised observations": (False, wrappers.NormalizeObservation),
    "normalised rewards": (False, wrappers.NormalizeReward),
    "stacked frames": (False, lambda env: wrappers.FrameStackObservation(env, 3)),
    "sticky actions": (False, lambda env: wrappers.StickyAction(env, 0.5)),
    "delayed": (False, lambda env: wrappers.DelayObservation(env, 2)),
    "time-aware": (False, wrappers.TimeAwareObservation),
    "the user's function": (False, lambda env: wrappers.TransformReward(env, lambda reward: 2 * reward)),
    "inside of a known one": (False, lambda env: wrappers.ClipReward(wrappers.StickyAction(env, 0.5), 0.0)),
    "subclass": (False, lambda env: Hurried(env, 0.0)),
    "own physics": (False, lambda env: OwnHopper()),
    "clipped": (True, lambda env: wrappers.ClipReward(env, -1.0, 1.0)),
    "rescaled": (True, lambda env: wrappers.RescaleAction(env, np.float32(-0.5), np.float32(0.5))),
    "repeated": (True, lambda env: wrappers.RepeatAction(env, 2)),
    "two time limits": (True, lambda env: wrappers.TimeLimit(wrappers.TimeLimit(env, 21), 500)),
    "offers its state": (True, lambda env: Remembers(env)),
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_wrapped_environments_continue_or_say_that_they_restart(kind: str) -> None:
    exact, wrap = WRAPPED[kind]
    cic.envs.register_env("wrapped", lambda: wrap(gymnasium.make("Hopper-v5")))
    env, other = cic.envs.make("wrapped", 2, seed=5), cic.envs.make("wrapped", 2, seed=99)
    assert env.exact_state == exact
    env.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (60, 2, 3)).astype(np.float32)
    rollout(env, actions[:13])
    other.restore(env.state())
    if exact:
        for a, b in zip(rollout(env, actions[13:]), rollout(other, actions[13:]), strict=True):
            np.testing.assert_array_equal(a, b)
    else:
        assert other._steps.tolist() == [0, 0]


def test_gymnasium_hopper_falls() -> None:
    env = cic.envs.make("gymnasium:Hopper-v5", 1)
    env.reset()
    assert env.episode_length == 1000
    for _ in range(1000):
        _, _, terminated, truncated, _ = env.step(np.ones((1, 3), np.float32))
        if terminated or truncated:
            break
    assert terminated[0]
    assert not truncated[0]


def test_time_limits_are_part_of_the_state() -> None:
    env, other = cic.envs.make("gymnasium:Hopper-v5"), cic.envs.make("gymnasium:Hopper-v5")
    env.reset()
    still = np.zeros((1, 3), np.float32)
    env.step(still)
    state = env.state()
    state["env0/elapsed"][:] = 998
    other.restore(state)
    assert [bool(other.step(still)[3][0]) for _ in range(2)] == [False, True]


class Counter(Toy):
    """Offers its state."""

    def get_state(self) -> dict[str, Any]:
        return {"count": np.array([len(self.actions)]), "start": np.array([self.start])}

    def set_state(self, state: dict[str, Any]) -> None:
        self.actions, self.start = [None] * int(state["count"][0]), float(state["start"][0])


def test_an_environment_may_offer_its_own_state() -> None:
    cic.envs.register_env("counter", Counter)
    env, other = cic.envs.make("counter", 2, seed=1), cic.envs.make("counter", 2, seed=8)
    assert env.exact_state
    env.reset()
    actions = np.zeros((12, 2, 2), np.float32)
    rollout(env, actions[:3])
    other.restore(env.state())
    for a, b in zip(rollout(env, actions), rollout(other, actions), strict=True):  # over an end and a reset
        np.testing.assert_array_equal(a, b)


def test_without_a_state_episodes_restart() -> None:
    env, other = make(2, seed=1), make(2, seed=8)
    assert not env.exact_state
    env.reset()
    env.step(np.zeros((2, 2), np.float32))
    other.restore(env.state())
    np.testing.assert_array_equal(other._envs[0].actions, [])
    obs, _ = other.reset(options={"reset_mask": np.zeros(2, bool)})
    np.testing.assert_array_equal(obs, env.reset()[0])  # the generators were carried over
    other.step(np.zeros((2, 2), np.float32))


def test_dm_env() -> None:
    cic.envs.register_env("dm", lambda: ground_truth.load("hopper", "hop", 3))
    env, ours = cic.envs.make("dm", seed=3), cic.envs.make("hopper-hop", seed=3)
    np.testing.assert_array_equal(env.reset()[0], ours.reset()[0])
    for action in np.random.default_rng(0).uniform(-1, 1, (1000, 1, 4)).astype(np.float32):
        theirs, mine = env.step(action), ours.step(action)
        np.testing.assert_allclose(theirs[0], mine[0], atol=1e-6)
        np.testing.assert_allclose(theirs[1], mine[1], atol=1e-6)
        assert (theirs[2], theirs[3]) == (mine[2], mine[3])
    assert theirs[3][0]
    np.testing.assert_array_equal(env.reset(seed=9)[0], ours.reset(seed=9)[0])
