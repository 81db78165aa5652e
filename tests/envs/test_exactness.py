"""The numbers are dm_control's: observations, rewards, initial states, episode ends."""

from __future__ import annotations

import ground_truth
import numpy as np
import pytest

import cic.envs

ELSEWHERE = {"gridworld", "ant", "half_cheetah"}  # not dm_control's
SUITE = [(d, t) for d, info in cic.envs.domains().items() if d not in ELSEWHERE for t in info.tasks]
JACO = [(d, t) for d, t in SUITE if d == "jaco"]  # slow, and its tasks differ only in where the target is
QUICK = [pytest.param(*name, marks=pytest.mark.slow if name in JACO[1:] else ()) for name in SUITE]


@pytest.mark.parametrize(("domain", "task"), QUICK)
def test_a_thousand_steps_equal_dm_control(domain: str, task: str) -> None:
    seed = 17
    truth, env = ground_truth.load(domain, task, seed), cic.envs.make(f"{domain}-{task}", seed=seed)
    actions = np.random.default_rng(5).uniform(-1, 1, (1000, 1, env.spaces.action)).astype(np.float32)
    obs, step = None, None
    for t, action in enumerate(actions):
        if step is None or step.last():
            step, (obs, _) = truth.reset(), env.reset()
            np.testing.assert_allclose(
                obs[0], ground_truth.flat(step.observation), atol=1e-6, rtol=1e-7, err_msg="reset"
            )
        step, (obs, reward, terminated, truncated, info) = truth.step(action[0]), env.step(action)
        np.testing.assert_allclose(
            obs[0], ground_truth.flat(step.observation), atol=1e-6, rtol=1e-7, err_msg=f"step {t}"
        )
        assert abs(reward[0] - step.reward) < 1e-6
        assert (terminated[0], truncated[0]) == (step.last() and step.discount == 0, step.last() and step.discount == 1)
        if t % 10 == 0:  # evaluating all tasks on dm_control's physics takes longer than a step
            for name, value in ground_truth.rewards(domain, truth).items():
                assert abs(info["rewards"][name][0] - value) < 1e-6, name
    assert step is not None
    assert step.last()  # all episodes have ended: none was longer or shorter


@pytest.mark.parametrize(("domain", "task", "resets"), [
    ("walker", "stand", 40),
    ("quadruped", "walk", 25),
    ("jaco", "reach_bottom_right", 12),
    ("point_mass", "easy", 40),
    ("hopper", "stand", 40),
])  # fmt: skip
def test_initial_states_come_from_the_same_random_stream(domain: str, task: str, resets: int) -> None:
    truth, env = ground_truth.load(domain, task, 3), cic.envs.make(f"{domain}-{task}", seed=3)
    for _ in range(resets):
        expected, (obs, _) = ground_truth.flat(truth.reset().observation), env.reset()
        np.testing.assert_array_equal(obs[0], expected.astype(np.float32))


def test_the_domain_moves_like_its_tasks() -> None:
    """The reward-free domain has the physics of the tasks (jaco: with the brick at the top left)."""
    for domain, task in (("walker", "run"), ("jaco", "reach_top_left")):
        free, paid = cic.envs.make(domain, seed=1), cic.envs.make(f"{domain}-{task}", seed=1)
        np.testing.assert_array_equal(free.reset()[0], paid.reset()[0])
        action = np.full((1, free.spaces.action), 0.3, np.float32)
        for _ in range(5):
            a, b = free.step(action), paid.step(action)
            np.testing.assert_array_equal(a[0], b[0])
            assert a[1][0] == 0.0
            assert a[4]["rewards"][task][0] == b[1][0] == b[4]["rewards"][task][0]
