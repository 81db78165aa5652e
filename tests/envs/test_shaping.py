"""Rewards' shapes against dm_control's `tolerance`; floats and arrays give the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ground_truth import INF, tolerance

from cic.envs.suite.shaping import bell, inside, length, ramp

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
    np.testing.assert_allclose(length(X, 2 * X, 0 * X), np.sqrt(5) * np.abs(X))
    assert length(3.0, 4.0) == 5.0


def check(shape: Any, expected: Any) -> None:
    np.testing.assert_allclose(shape(X), expected, atol=1e-12)
    np.testing.assert_array_equal(shape(X), [shape(x) for x in X.tolist()])
