"""The contract of the vector environments, over everything that is registered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import cic.envs
from cic.envs.base import VectorEnv
from cic.envs.gymnasium_ids import ids
from cic.envs.quantities import values

DOMAINS = list(cic.envs.domains())


def actions_for(env: VectorEnv, steps: int, seed: int = 0) -> np.ndarray[Any, Any]:
    shape = (steps, env.num_envs, env.spaces.action)
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def assert_same(one: Any, other: Any) -> None:
    """The very bits of two results of `step`."""
    for a, b in zip(one[:4], other[:4], strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    assert one[4]["rewards"].keys() == other[4]["rewards"].keys()
    for task, reward in one[4]["rewards"].items():
        np.testing.assert_array_equal(reward, other[4]["rewards"][task])


@pytest.mark.filterwarnings("ignore:.*Box observation space m.*infinity.*")
@pytest.mark.parametrize("id", ids())
def test_gymnasium_finds_nothing_wrong(id: str) -> None:
    check_env(gymnasium.make(id).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_catalogue_is_true(domain: str) -> None:
    info, env = cic.envs.domains()[domain], cic.envs.make(domain, num_envs=2)
    obs, _ = env.reset()
    _, reward, terminated, truncated, step_info = env.step(actions_for(env, 1)[0])
    assert obs.shape == (2, info.obs) == env.observation_space.shape
    assert (env.spaces.obs, env.spaces.action) == (info.obs, info.action)
    assert obs.dtype == reward.dtype == np.float32
    assert terminated.dtype == truncated.dtype == np.bool_
    assert (env.name, env.domain, env.task, env.tasks) == (domain, domain, None, info.tasks)
    assert tuple(step_info["rewards"]) == info.tasks
    assert all(value.shape == (2,) and value.dtype == np.float32 for value in step_info["rewards"].values())
    assert (env.episode_length, env.coverage) == (info.episode_length, info.coverage)
    assert env.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    assert (env.single_action_space.low == -1).all()
    assert (env.single_action_space.high == 1).all()


def test_expert_scores() -> None:
    assert cic.envs.domains()["walker"].experts == {"stand": 984, "walk": 971, "run": 796, "flip": 799}
    assert cic.envs.domains()["hopper"].experts == {"stand": None, "hop": None}
    assert None not in cic.envs.domains()["jaco"].experts.values()


@pytest.mark.parametrize("domain", DOMAINS)
def test_coverage_holds_what_random_actions_visit(domain: str) -> None:
    env = cic.envs.make(domain, num_envs=4, seed=3)
    obs = [env.reset()[0], *(env.step(action)[0] for action in actions_for(env, 49))]
    assert env.coverage is not None
    for quantity in env.coverage:
        assert quantity.low is not None
        assert quantity.high is not None
        visited = values(quantity, np.concatenate(obs))
        assert ((visited >= quantity.low) & (visited <= quantity.high)).mean() > 0.97, quantity.name
        assert visited.std() > 0.005 * (quantity.high - quantity.low), f"{quantity.name} hardly moves"


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("n", [3, 9])
def test_n_environments_equal_n_single_environments(domain: str, n: int) -> None:
    seed = 11
    many, singles = cic.envs.make(domain, n, seed), [cic.envs.make(domain, 1, seed + i) for i in range(n)]
    np.testing.assert_array_equal(many.reset()[0], np.concatenate([env.reset()[0] for env in singles]))
    for t, action in enumerate(actions_for(many, 40)):
        result = many.step(action)
        single = [env.step(action[i : i + 1]) for i, env in enumerate(singles)]
        rewards = {task: np.concatenate([s[4]["rewards"][task] for s in single]) for task in many.tasks}
        joined = [np.concatenate([s[k] for s in single]) for k in range(4)]
        assert_same(result, (*joined, {"rewards": rewards}))
        if t in (10, 25):
            mask = np.arange(n) % 2 == 0
            obs, _ = many.reset(options={"reset_mask": mask})
            expected = [env.reset()[0][0] if mask[i] else single[i][0][0] for i, env in enumerate(singles)]
            np.testing.assert_array_equal(obs, np.stack(expected))


@pytest.mark.parametrize("domain", DOMAINS)
def test_same_seed_same_bits_on_any_number_of_threads(domain: str) -> None:
    envs = [cic.envs.make(domain, 3, 5, threads=threads) for threads in (1, 3)]
    other = cic.envs.make(domain, 3, 6)
    first, second, third = (env.reset()[0] for env in (*envs, other))
    np.testing.assert_array_equal(first, second)
    if domain != "gridworld":  # whose four starts are soon used up
        np.testing.assert_array_equal(first[1:], third[:2])  # copy i has seed + i
        assert not np.array_equal(first[0], third[0])
    for action in actions_for(envs[0], 20):
        assert_same(*(env.step(action) for env in envs))
    np.testing.assert_array_equal(envs[0].reset(seed=5)[0], first)
    np.testing.assert_array_equal(envs[1].reset(seed=[5, 6, 7])[0], first)


def test_what_step_returned_stays() -> None:
    for n in (1, 3):
        env = cic.envs.make("walker-run", n)
        obs, _ = env.reset()
        results = [(obs, np.zeros(n), {})]
        copies = [(obs.copy(), np.zeros(n), {})]
        for action in actions_for(env, 20):
            obs, reward, _, _, info = env.step(action)
            results.append((obs, reward, info["rewards"]))
            copies.append((obs.copy(), reward.copy(), {k: v.copy() for k, v in info["rewards"].items()}))
        for result, copy in zip(results, copies, strict=True):
            np.testing.assert_array_equal(result[0], copy[0])
            np.testing.assert_array_equal(result[1], copy[1])
            for task, reward in result[2].items():
                np.testing.assert_array_equal(reward, copy[2][task])
        assert len({id(array) for array, *_ in results}) == len(results)


def test_writing_into_results_changes_nothing() -> None:
    for n in (1, 2):
        env, other = cic.envs.make("hopper-hop", n), cic.envs.make("hopper-hop", n)
        env.reset()[0][:] = 7
        other.reset()
        for action in actions_for(env, 3):
            obs, reward, terminated, truncated, info = env.step(action)
            expected = other.step(action)
            assert_same((obs, reward, terminated, truncated, info), expected)
            obs[:], reward[:], terminated[:], truncated[:] = 7, 7, True, True
            info["rewards"]["hop"][:] = 7
        np.testing.assert_array_equal(env.reset(options={"reset_mask": np.zeros(n, bool)})[0], expected[0])


@pytest.mark.parametrize(("name", "length"), [("gridworld-reach_top_left", 50), ("jaco-reach_top_left", 250)])
def test_episodes_end_by_time_copy_by_copy(name: str, length: int) -> None:
    env = cic.envs.make(name, 3)
    env.reset()
    action = np.zeros((3, env.spaces.action), np.float32)
    ends = []
    for t in range(1, length + 11):
        if t == 11:
            env.reset(options={"reset_mask": np.array([False, True, False])})
        _, _, terminated, truncated, _ = env.step(action)
        assert not terminated.any()
        ends.append(truncated)
        if truncated.any():
            env.reset(options={"reset_mask": truncated})
    late, early = np.array(ends)[:, 1], np.array(ends)[:, [0, 2]]
    assert np.flatnonzero(late).tolist() == [length + 9]
    assert np.flatnonzero(early[:, 0]).tolist() == np.flatnonzero(early[:, 1]).tolist() == [length - 1]


@pytest.mark.parametrize("n", [1, 3])
def test_asking_for_the_state_lets_episodes_end(n: int) -> None:
    env = cic.envs.make("jaco", n)
    env.reset()
    ends = []
    for t, action in enumerate(actions_for(env, 250)):
        if t % 70 == 69:
            env.state()
        ends.append(env.step(action)[3])
    np.testing.assert_array_equal(np.array(ends).nonzero()[0], [249] * n)


CONTINUE = """
import sys, numpy as np, cic.envs
saved = np.load(sys.argv[1])
results = {}
for domain in cic.envs.domains():
    for n in (1, 3):
        env = cic.envs.make(domain, n, seed=999)
        env.restore({k.split("|")[2]: v for k, v in saved.items() if k.startswith(f"{domain}|{n}|")})
        obs = [env.reset(options={"reset_mask": np.zeros(n, bool)})[0]]
        obs += [env.step(action)[0] for action in saved[f"actions|{domain}|{n}"]]
        obs += [env.reset()[0]]
        results[f"{domain}|{n}"] = np.stack(obs)
np.savez(sys.argv[2], **results)
"""


def test_another_process_continues_bit_for_bit(tmp_path: Path) -> None:
    saved, expected = {}, {}
    for domain in DOMAINS:
        for n in (1, 3):
            env = cic.envs.make(domain, n, seed=2)
            env.reset()
            for action in actions_for(env, 15):
                obs = env.step(action)[0]
            saved.update({f"{domain}|{n}|{key}": value for key, value in env.state().items()})
            actions = saved[f"actions|{domain}|{n}"] = actions_for(env, 20, seed=1)
            expected[f"{domain}|{n}"] = np.stack([obs, *(env.step(a)[0] for a in actions), env.reset()[0]])
    np.savez(tmp_path / "saved.npz", **saved)
    command = [sys.executable, "-c", CONTINUE, str(tmp_path / "saved.npz"), str(tmp_path / "results.npz")]
    subprocess.run(command, check=True, timeout=120)
    results = np.load(tmp_path / "results.npz")
    assert sorted(results) == sorted(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(results[key], value, err_msg=key)


def test_state_carries_the_end_of_an_episode() -> None:
    env = cic.envs.make("gridworld", 2)
    env.reset()
    for action in actions_for(env, 50):
        env.step(action)
    other = cic.envs.make("gridworld", 2)
    other.reset()
    other.restore(env.state())
    with pytest.raises(ValueError, match="has ended"):
        other.step(np.zeros((2, 2), np.float32))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")
def test_threads_end_with_the_environment() -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = threads()
    env = cic.envs.make("walker", 4, threads=4)
    env.reset()
    env.step(actions_for(env, 1)[0])
    assert threads() > before
    env.close()
    env.close()
    assert threads() == before
    env = cic.envs.make("walker", 4, threads=4)
    del env
    assert threads() == before
