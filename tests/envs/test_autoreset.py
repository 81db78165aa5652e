"""`gymnasium.make_vec` with Gymnasium's automatic resets: the same as Gymnasium's own vector of single environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import cic.envs.gymnasium_ids  # noqa: F401 (registers)
from cic.core.errors import UserError

COPIES = 3
AUTOMATIC = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


def pair(name: str, mode: AutoresetMode) -> tuple[Any, Any]:
    """Ours and Gymnasium's."""
    return (
        gymnasium.make_vec(f"cic/{name}-v0", num_envs=COPIES, autoreset_mode=mode),
        gymnasium.make_vec(
            f"cic/{name}-v0", num_envs=COPIES, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
        ),
    )


@pytest.mark.parametrize("mode", AUTOMATIC)
@pytest.mark.parametrize(("name", "length"), [("gridworld-reach_top_left", 50), ("jaco-reach_top_left", 250)])
def test_more_than_an_episode_equals_gymnasiums_own(name: str, length: int, mode: AutoresetMode) -> None:
    ours, theirs = pair(name, mode)
    assert ours.metadata["autoreset_mode"] == mode
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(ours.reset(seed=4)[0], theirs.reset(seed=4)[0])
    ends = 0
    for t in range(length + 40):
        if t == 17:  # from now on the copies end at different times
            mask = np.array([False, True, False])
            states = [env.reset(options={"reset_mask": mask.copy()})[0] for env in (ours, theirs)]
            np.testing.assert_array_equal(*states)
        actions = rng.uniform(-1, 1, ours.action_space.shape).astype(np.float32)
        mine, expected = ours.step(actions), theirs.step(actions)
        for a, b in zip(mine[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(a, np.asarray(b, a.dtype))
        ended = mine[2] | mine[3]
        ends += int(ended.sum())
        if mode == AutoresetMode.SAME_STEP and ended.any():
            np.testing.assert_array_equal(mine[4]["_final_obs"], expected[4]["_final_obs"])
            for i in np.flatnonzero(ended):
                np.testing.assert_array_equal(mine[4]["final_obs"][i], expected[4]["final_obs"][i])
    assert ends == COPIES


def test_the_first_step_of_an_episode_pays_nothing() -> None:
    env: Any = gymnasium.make_vec("cic/gridworld-reach_top_left-v0", num_envs=2)
    assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP  # Gymnasium's rule, so it is ours there
    env.reset()
    up_left = [np.array([[0, 1]] * 2, np.float32), np.array([[-1, 0]] * 2, np.float32)]
    rewards, ends = [], []
    for t in range(102):
        _, reward, _, truncated, info = env.step(up_left[t % 2])
        np.testing.assert_array_equal(info["rewards"]["reach_top_left"], reward)
        rewards.append(reward[0])
        ends.append(truncated[0])
    assert np.flatnonzero(ends).tolist() == [49, 100]
    assert rewards[49] == 1
    assert rewards[50] == rewards[101] == 0


def test_wrong_actions_do_not_use_up_a_reset() -> None:
    env, untouched = (gymnasium.make_vec("cic/gridworld-v0", num_envs=2) for _ in range(2))
    for each in (env, untouched):
        each.reset(seed=1)
        for _ in range(50):
            each.step(np.zeros((2, 2), np.float32))
    for wrong in (np.zeros((3, 2)), np.full((2, 2), np.nan), None):
        with pytest.raises(UserError, match="action"):
            env.step(wrong)
    good = np.ones((2, 2), np.float32)
    for _ in range(52):  # over this reset and the next
        np.testing.assert_array_equal(env.step(good)[0], untouched.step(good)[0])


def test_disabled_is_ours() -> None:
    env: Any = gymnasium.make_vec("cic/gridworld-v0", num_envs=2, autoreset_mode="Disabled")
    env.reset()
    for _ in range(50):
        env.step(np.zeros((2, 2), np.float32))
    with pytest.raises(UserError, match="has ended"):
        env.step(np.zeros((2, 2), np.float32))


def test_an_unknown_mode() -> None:
    with pytest.raises(UserError, match=r"autoreset_mode must be one of .*SameStep.*, not 'later'"):
        gymnasium.make_vec("cic/gridworld-v0", autoreset_mode="later")
