"""Formulas of named quantities at arrays of observations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.expressions import Expression, parse
from cic.core.named_quantities import Quantities

Floats = npt.NDArray[np.float64]
Observations = npt.NDArray[np.floating[Any]]


def quantity_values(quantities: Quantities, obs: Observations) -> dict[str, Floats]:
    """The value of each quantity at observations (N, obs)."""
    entries = _entries(obs)
    return {quantity.name: _evaluate(_parsed(quantity.formula), entries) for quantity in quantities}


@lru_cache(maxsize=1_024)
def _parsed(text: str) -> Expression:
    """The formula of a quantity, which is needed at every step."""
    return parse(text)


def _entries(obs: Observations) -> dict[str, Floats]:
    return {f"obs[{index}]": column for index, column in enumerate(obs.astype(np.float64).T)}


def _evaluate(formula: Expression, values: Mapping[str, Floats]) -> Floats:
    count = next(iter(values.values())).shape
    with np.errstate(all="ignore"):
        return np.asarray(np.broadcast_to(formula(values, np, np.float64), count))


class FormulaReward:
    """The reward (N,) of observations (N, obs) that a formula defines."""

    def __init__(self, text: str, quantities: Quantities, obs: int) -> None:
        self._quantities = quantities
        names = [*(one.name for one in quantities), *(f"obs[{index}]" for index in range(obs))]
        self._formula = parse(text, names)

    def __call__(self, obs: Observations) -> Floats:
        found = _evaluate(self._formula, _entries(obs) | quantity_values(self._quantities, obs))
        if not np.isfinite(found).all():
            raise UserError(
                f'"{self._formula.text}" is not finite at {np.mean(~np.isfinite(found)):.0%} of the states: avoid '
                "divisions by zero, and roots of negative numbers with max(…, 0)"
            )
        return found
