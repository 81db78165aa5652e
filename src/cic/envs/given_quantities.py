"""The named quantities that a user gives to `register_env`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

from cic.core.errors import UserError
from cic.core.expressions import parse
from cic.core.named_quantities import MOST, NamedQuantity, Quantities, check_quantities

GivenQuantity: TypeAlias = "int | str | NamedQuantity | Callable[[Any], float]"
GivenQuantities: TypeAlias = "Mapping[str, GivenQuantity]"
KEY = "quantities"
"""The key of the functions' values in a Dict observation."""
_ENTRY = re.compile(r"[A-Za-z_][\w.]*\[\d+\]")


# ---- functions -------------------------------------------------------------------------------------------------


class ObservedFunctions(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Adds the values of functions of the observation to it: at the end of a vector, or as a key of a Dict."""

    def __init__(self, env: gymnasium.Env[Any, Any], functions: dict[str, Callable[[Any], float]]) -> None:
        super().__init__(env)
        self._functions = functions
        own, added = env.observation_space, np.full(len(functions), np.inf, np.float32)
        if isinstance(own, Box) and len(own.shape) == 1:
            low, high = np.append(own.low, -added), np.append(own.high, added)
            self.observation_space = Box(low.astype(np.float32), high.astype(np.float32))
        elif isinstance(own, Dict) and KEY not in own.spaces:
            self.observation_space = Dict({**own.spaces, KEY: Box(-added, added)})
        else:
            raise UserError(
                "quantities that are functions need observations that are vectors or Dicts: use formulas instead"
            )

    def observation(self, observation: Any) -> Any:
        values = np.array([float(function(observation)) for function in self._functions.values()], np.float32)
        if isinstance(self.observation_space, Dict):
            return {**observation, KEY: values}
        return np.append(observation, values).astype(np.float32)

    def get_state(self) -> dict[str, Any]:
        """This wrapper has no state."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """This wrapper has no state."""


def observing_functions(factory: Callable[[], Any], given: GivenQuantities) -> Callable[[], Any]:
    """Return a factory whose environments also observe the quantities that are functions."""
    functions = {name: value for name, value in given.items() if callable(value)}
    if not functions:
        return factory

    def make() -> Any:
        env = factory()
        if not isinstance(env, gymnasium.Env):
            raise UserError("quantities that are functions need a gymnasium.Env: use formulas instead")
        return ObservedFunctions(env, functions)

    return make


# ---- formulas --------------------------------------------------------------------------------------------------


def resolve(env: str, given: GivenQuantities, entries: list[str]) -> Quantities:
    """Return the quantities as formulas of the flat observation.

    Args:
        env: The name of the environment, for error messages.
        given: As in `register_env`; without any, the entries of the observation are the quantities.
        entries: The names of the entries of the observation, including the values of functions.
    """
    places = {entry: f"obs[{index}]" for index, entry in enumerate(entries)}
    if not given:
        given = {_word(entry): index for index, entry in enumerate(entries[:MOST])}
    functions = [name for name, value in given.items() if callable(value)]
    observed = _places_of_functions(entries, len(functions))
    found = []
    for name, value in given.items():
        formula = f"obs[{observed[functions.index(name)]}]" if callable(value) else value
        found.append(_quantity(env, name, formula, places))
    check_quantities(tuple(found))
    return tuple(found)


def _places_of_functions(entries: list[str], count: int) -> list[int]:
    keyed = [place for place, entry in enumerate(entries) if entry.startswith(f"{KEY}[")]
    return keyed or list(range(len(entries) - count, len(entries)))


def _quantity(env: str, name: str, value: GivenQuantity, places: dict[str, str]) -> NamedQuantity:
    quantity = value if isinstance(value, NamedQuantity) else NamedQuantity(name, "0")
    formula = value.formula if isinstance(value, NamedQuantity) else value
    if isinstance(formula, int) and not isinstance(formula, bool):
        formula = f"obs[{formula}]"
    if not isinstance(formula, str):
        wanted = "an index, a formula, a function or a cic.NamedQuantity"
        raise UserError(f"{env}: the quantity {name} must be {wanted}, not {type(formula).__name__}")
    formula = _ENTRY.sub(lambda found: places.get(found.group(), found.group()), formula)
    missing = sorted(parse(formula).names - set(places.values()))
    if missing:
        raise UserError(f"{env}: the quantity {name} uses {missing[0]}; the entries are {_listed(places)}")
    return dataclasses.replace(quantity, name=name, formula=formula)


def _listed(places: dict[str, str]) -> str:
    names = [entry if "[" in entry else place for entry, place in places.items()]
    return ", ".join(names if len(names) <= 12 else [*names[:5], "…", names[-1]])


def _word(entry: str) -> str:
    """`entry 0` → `entry_0`, `position[1]` → `position_1`."""
    word = re.sub(r"\W+", "_", entry, flags=re.ASCII).strip("_")
    return word if word.isidentifier() else f"entry_{word}"
