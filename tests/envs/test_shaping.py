"""Rewards' shapes against dm_control's `tolerance`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ground_truth import INF, tolerance

from cic.envs.suite.shaping import bell, inside, length, ramp, small_control

X = np.concatenate([np.linspace(-3, 3, 601), [1.2, 0.6, 0.0, 8.0, -8.0]])


@pytest.mark.parametrize(("bound", "margin", "at_margin"), [(1, 0.5, 0.5), (1, 2, 0.0), (0.5, 0.5, 0.5), (-1, 1, 0.25)])
def test_ramp(bound: float, margin: float, at_margin: float) -> None:
    expected = tolerance(X, (bound, INF), margin=margin, value_at_margin=at_margin, sigmoid="linear")
    check(ramp(bound, margin, at_margin), expected)


@pytest.mark.parametrize(("bound", "margin"), [(0.05, 0.05), (1.0, 0.3)])
def test_bell(bound: float, margin: float) -> None:
    check(bell(bound, margin), tolerance(X, (-INF, bound), margin=margin))


def test_inside() -> None:
    check(inside(0.6, 2), tolerance(X, (0.6, 2)))


def test_length() -> None:
    assert length(3.0, 4.0) == 5.0
    assert length(2.0, 3.0, -6.0) == 7.0


def test_small_control() -> None:
    controls = np.random.default_rng(0).uniform(-1, 1, (5, 3))
    expected = (tolerance(controls, margin=1, value_at_margin=0, sigmoid="quadratic").mean(axis=1) + 4) / 5
    np.testing.assert_allclose([small_control(*row) for row in controls.tolist()], expected, atol=1e-12)


def check(shape: Any, expected: Any) -> None:
    np.testing.assert_allclose([shape(x) for x in X.tolist()], expected, atol=1e-12)
