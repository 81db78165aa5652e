"""The gridworld, by hand."""

from __future__ import annotations

import numpy as np

import cic.envs


def test_four_moves_and_walls() -> None:
    env = cic.envs.make("gridworld-reach_bottom_right", 4)
    start, _ = env.reset()
    cells = np.rint((start + 1) * 4.5)
    assert np.isin(cells, [4, 5]).all()
    moves = np.array([[0.2, -0.1], [-0.9, 0.8], [0.1, 0.3], [0.2, -0.5]], np.float32)  # right, left, up, down
    obs = env.step(moves)[0]
    np.testing.assert_allclose((obs - start) * 4.5, [[1, 0], [-1, 0], [0, 1], [0, -1]], atol=1e-5)
    for _ in range(12):
        obs = env.step(moves)[0]
    np.testing.assert_array_equal([obs[0, 0], obs[1, 0], obs[2, 1], obs[3, 1]], [1, -1, 1, -1])
    tie = env.step(np.array([[-0.5, 0.5], [0, 0], [0, 0], [0, 0]], np.float32))[0]
    np.testing.assert_allclose((tie - obs)[:2] * 4.5, [[-1, 0], [1, 0]], atol=1e-5)  # ties along x, zero is positive


def test_rewards_are_given_in_the_corners() -> None:
    env = cic.envs.make("gridworld-reach_bottom_right")
    env.reset()
    right, down = np.array([[1, 0]], np.float32), np.array([[0, -1]], np.float32)
    total = 0.0
    for action in [right] * 9 + [down] * 9:
        _, reward, *_, info = env.step(action)
        total += reward[0]
        assert info["rewards"]["reach_bottom_right"] == reward
        assert not any(info["rewards"][task][0] for task in env.tasks if task != "reach_bottom_right")
    assert reward[0] == 1.0
    assert 5 <= total <= 6
    np.testing.assert_array_equal(env.step(down)[0], [[1, -1]])


def test_starts_are_the_four_cells_in_the_middle() -> None:
    env = cic.envs.make("gridworld", 64)
    starts = {tuple(cell) for cell in np.rint((env.reset()[0] + 1) * 4.5).astype(int).tolist()}
    assert starts == {(4, 4), (4, 5), (5, 4), (5, 5)}


def test_picture() -> None:
    env = cic.envs.make("gridworld")
    env.reset()
    picture = env.render(width=100, height=50)
    assert picture.shape == (50, 100, 3)
    assert picture.dtype == np.uint8
    blue = (picture == (40, 90, 200)).all(axis=2)
    assert blue.sum() == 10 * 5
    x, y = np.rint((env.step(np.array([[0, 1]], np.float32))[0][0] + 1) * 4.5).astype(int)
    moved = (env.render(width=100, height=50) == (40, 90, 200)).all(axis=2)
    assert moved[(9 - y) * 5 : (10 - y) * 5, x * 10 : (x + 1) * 10].all()
    assert np.argwhere(moved)[0, 0] == np.argwhere(blue)[0, 0] - 5  # up in the picture
