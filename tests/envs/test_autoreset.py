"""`gymnasium.make_vec` resets as Gymnasium's own vector environments do."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import cic.envs.gymnasium_ids  # noqa: F401 (registers)
from cic.core.errors import UserError

NUM_ENVS = 3


@pytest.mark.parametrize(("name", "length"), [("gridworld-reach_top_left", 50), ("jaco-reach_top_left", 250)])
def test_same_step_equals_gymnasium_over_more_than_an_episode(name: str, length: int) -> None:
    mode = AutoresetMode.SAME_STEP
    ours: Any = gymnasium.make_vec(f"cic/{name}-v0", num_envs=NUM_ENVS)
    theirs: Any = gymnasium.make_vec(
        f"cic/{name}-v0", num_envs=NUM_ENVS, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
    )
    assert ours.metadata["autoreset_mode"] == mode
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(ours.reset(seed=4)[0], theirs.reset(seed=4)[0])
    ends = 0
    for t in range(length + 40):
        if t == 17:  # from now on the episodes end at different times
            mask = np.array([False, True, False])
            states = [env.reset(options={"reset_mask": mask.copy()})[0] for env in (ours, theirs)]
            np.testing.assert_array_equal(*states)
        actions = rng.uniform(-1, 1, ours.action_space.shape).astype(np.float32)
        mine, expected = ours.step(actions), theirs.step(actions)
        for a, b in zip(mine[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(a, np.asarray(b, a.dtype))
        done = mine[2] | mine[3]
        ends += int(done.sum())
        if done.any():
            np.testing.assert_array_equal(mine[4]["_final_obs"], expected[4]["_final_obs"])
            for i in np.flatnonzero(done):
                np.testing.assert_array_equal(mine[4]["final_obs"][i], expected[4]["final_obs"][i])
    assert ends == NUM_ENVS


def test_next_step_is_available_from_gymnasium() -> None:
    for mode in (AutoresetMode.NEXT_STEP, "NextStep"):
        with pytest.raises(UserError, match=r'must be "SameStep" or "Disabled".*vectorization_mode="sync"'):
            gymnasium.make_vec("cic/gridworld-v0", num_envs=2, autoreset_mode=mode)
    env = gymnasium.make_vec("cic/gridworld-v0", num_envs=2, vectorization_mode="sync")
    assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP


def test_disabled_never_resets() -> None:
    env: Any = gymnasium.make_vec("cic/gridworld-v0", num_envs=2, autoreset_mode="Disabled")
    env.reset()
    for _ in range(50):
        env.step(np.zeros((2, 2), np.float32))
    with pytest.raises(UserError, match="has ended"):
        env.step(np.zeros((2, 2), np.float32))


def test_unknown_mode_is_refused() -> None:
    with pytest.raises(UserError, match=r"autoreset_mode must be .*SameStep.*, not 'later'"):
        gymnasium.make_vec("cic/gridworld-v0", autoreset_mode="later")
