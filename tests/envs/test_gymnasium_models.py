"""Ant and half cheetah move as Gymnasium's do, observe where they are and never end early."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import cic.envs

MODELS = {"ant": "Ant-v5", "half_cheetah": "HalfCheetah-v5"}
USUAL = {  # what an observed velocity of 1 is, in m/s and rad/s
    "ant": np.array([0.8, 0.8, 1.0, 1.75, 1.75, 1.85] + [4.4] * 8),
    "half_cheetah": np.array([0.75, 0.75, 1.6] + [6.3] * 6),
}


@pytest.mark.parametrize("domain", MODELS)
def test_steps_equal_gymnasium(domain: str) -> None:
    env, truth = cic.envs.make(domain, seed=3), gymnasium.make(MODELS[domain])
    body: Any = truth.unwrapped
    body.reset(seed=0)
    obs, _ = env.reset()
    rng, positions = np.random.default_rng(0), body.model.nq
    body.set_state(obs[0, :positions].astype(np.float64), obs[0, positions:] * USUAL[domain])
    for step in range(16):
        action = rng.uniform(-1, 1, (1, env.spaces.action)).astype(np.float32)
        obs, *_ = env.step(action)
        body.do_simulation(action[0].astype(np.float64), body.frame_skip)
        expected = np.concatenate([body.data.qpos, body.data.qvel / USUAL[domain]])
        # The first observation was rounded to float32, and contacts spread what that leaves.
        np.testing.assert_allclose(obs[0], expected, atol=1e-6 * 1.6**step, err_msg=f"step {step}")


@pytest.mark.parametrize("domain", MODELS)
def test_an_episode_lasts_200_steps_whatever_happens(domain: str) -> None:
    env = cic.envs.make(domain, num_envs=2)
    env.reset(seed=0)
    for step in range(1, 201):
        obs, reward, terminated, truncated, info = env.step(np.ones((2, env.spaces.action), np.float32))
        assert not terminated.any()
        assert truncated.all() == (step == 200)
        assert (reward == 0).all()
        for paid in info["rewards"].values():
            assert ((paid >= 0) & (paid <= 1)).all()
        assert np.isfinite(obs).all()


@pytest.mark.parametrize(("domain", "axis", "scale"), [("ant", 15, 3.0), ("half_cheetah", 9, 6.0)])
def test_tasks_pay_speed(domain: str, axis: int, scale: float) -> None:
    env = cic.envs.make(f"{domain}-backward", seed=1)
    env.reset(seed=1)
    rng = np.random.default_rng(1)
    paid = []
    for _ in range(100):
        obs, reward, _, _, info = env.step(rng.uniform(-1, 1, (1, env.spaces.action)).astype(np.float32))
        speed, sideways = obs[0, axis : axis + 2] * USUAL[domain][:2] / scale
        assert info["rewards"]["forward"][0] == pytest.approx(np.clip(speed, 0, 1), abs=1e-6)
        assert reward[0] == pytest.approx(np.clip(-speed, 0, 1), abs=1e-6)
        if domain == "ant":
            assert info["rewards"]["left"][0] == pytest.approx(np.clip(sideways, 0, 1), abs=1e-6)
        paid.append(reward[0])
    assert max(paid) > 0


@pytest.mark.parametrize("domain", MODELS)
def test_starts_are_gymnasiums(domain: str) -> None:
    env = cic.envs.make(domain, num_envs=400)
    obs, _ = env.reset(seed=0)
    positions = {"ant": 15, "half_cheetah": 9}[domain]
    still = gymnasium.make(MODELS[domain]).unwrapped.init_qpos  # type: ignore[attr-defined]
    off = obs[:, :positions] - still
    assert np.abs(off).max() <= 0.1 + 1e-6
    assert off.std() == pytest.approx(0.2 / np.sqrt(12), rel=0.05)
    assert (obs[:, positions:] * USUAL[domain]).std() == pytest.approx(0.1, rel=0.05)
