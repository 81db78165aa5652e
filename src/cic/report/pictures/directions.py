"""Where nobody says what is worth drawing: the two directions of the observation in which skills differ most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cic.core.types import Array

Floats = npt.NDArray[np.float64]
_NAMED = 3


@dataclass(frozen=True)
class Direction:
    """A weighted sum of the observation's entries, each counted from its mean in standard deviations."""

    weights: Floats  # (obs,), of length 1
    mean: Floats
    spread: Floats
    share: float
    """Of the variance between skills."""
    names: Sequence[str]

    def values(self, obs: Array) -> Floats:
        return np.asarray((obs - self.mean) / self.spread @ self.weights)

    @property
    def label(self) -> str:
        """The entries that make it up, the heaviest first."""
        heaviest = np.argsort(-np.abs(self.weights))[:_NAMED]
        parts = [
            f"{self.weights[i]:+.2f} {self.names[i]}".replace("-", "−") for i in heaviest if abs(self.weights[i]) > 0.05
        ]
        more = int((np.abs(self.weights) > 0.05).sum()) - len(parts)
        rest = f" and {more} more" if more > 0 else ""
        return f"{' '.join(parts)}{rest}"


def directions(paths: Sequence[Array], names: Sequence[str], count: int = 2) -> list[Direction]:
    """Principal axes of the skills' mean observations (of the path itself, if there is one), the widest first.

    Entries are standardised over all steps, so that none counts more for its unit.
    """
    every = np.concatenate(paths).astype(np.float64)
    mean, spread = every.mean(axis=0), every.std(axis=0)
    spread = np.where(spread > 1e-6, spread, 1.0)
    means = np.stack([path.mean(axis=0, dtype=np.float64) for path in paths]) if len(paths) > 2 else every
    centred = (means - means.mean(axis=0)) / spread
    _, lengths, axes = np.linalg.svd(centred, full_matrices=False)
    total = float((lengths**2).sum()) or 1.0
    found = []
    for axis, length in zip(axes[:count], lengths[:count], strict=True):
        turned = axis * np.sign(axis[np.abs(axis).argmax()])  # the heaviest entry counts upwards
        found.append(Direction(turned, mean, spread, float(length**2 / total), names))
    return found
