"""The values of the catalogue's quantities, from observations or simulator states."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cic.envs.catalogue import Quantity

Floats = npt.NDArray[np.float64]


def values(
    quantity: Quantity, obs: npt.NDArray[np.floating], physics: npt.NDArray[np.floating] | None = None
) -> Floats:
    """(T,): the quantity at each of T states."""
    source = physics if quantity.physics else obs
    if source is None:
        raise ValueError(f"{quantity.name} is a quantity of the physics, which is not given")
    columns = source[:, list(quantity.entries)].astype(np.float64)
    if columns.shape[1] == 2:
        cosine, sine = columns.T
        return np.asarray(np.degrees(np.arctan2(sine, cosine)))
    return np.asarray(quantity.scale * columns[:, 0])
