"""Named quantities of an environment, such as a walker's speed: formulas of the observation with a unit and a scale."""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from typing import TypeAlias

from cic.core.config import require
from cic.core.expressions import ARGUMENTS, parse

MOST = 512
"""The largest number of quantities."""


@dataclass(frozen=True)
class NamedQuantity:
    """A number that describes a state, for the objective `steer` and for prompts.

    Skills weigh its *signal*: (value − centre) / scale, squashed by tanh or clipped to [-1, 1].

    Example:
        ```python
        cic.NamedQuantity("speed", "obs[16]", "m/s", scale=3.0, low=-3.0, high=3.0)
        ```
    """

    name: str
    """A word that can be used in prompts."""
    formula: str
    """The value in its unit, from entries of the observation: `obs[16]`, `1 - 2 * obs[4] ** 2`."""
    unit: str = ""
    scale: float | None = None
    """The difference from the centre at which the signal is about 1; None means the running standard deviation, and
    the running mean as the centre."""
    centre: float = 0.0
    """The value at which the signal is 0."""
    squash: bool = True
    """Whether the signal is squashed by tanh; otherwise it is clipped."""
    low: float | None = None
    high: float | None = None
    """The usual range, for plots."""

    def __post_init__(self) -> None:
        plain = self.name.isidentifier() and self.name.isascii() and not keyword.iskeyword(self.name)
        require(
            plain and len(self.name) <= 40 and self.name not in (*ARGUMENTS, "obs"),
            f"the name of a quantity must be a word of letters, digits and _ that is no function, not {self.name!r}",
        )
        require(
            self.scale is None or 0 < self.scale < 1e9, f"the scale of {self.name} must be positive, not {self.scale}"
        )
        parse(self.formula)

    @property
    def label(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name


Quantities: TypeAlias = tuple[NamedQuantity, ...]


def check_quantities(quantities: Quantities) -> None:
    """Refuse names that occur twice, and more quantities than anybody can steer."""
    names = [quantity.name for quantity in quantities]
    require(len(names) <= MOST, f"there can be at most {MOST} quantities, not {len(names)}")
    twice = {name for name in names if names.count(name) > 1}
    require(not twice, f"two quantities have the name {min(twice, default='')}")


def entry_quantities(count: int) -> Quantities:
    """The entries of an observation of this size, standardised: the quantities of an environment that names none."""
    return tuple(NamedQuantity(f"entry_{index}", f"obs[{index}]") for index in range(count))
