"""One body and its floor in a viewer's scene.

The camera belongs to whoever looks. To follow a body, the world moves the other way under it: orbiting and zooming stay
as smooth as ever.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cic.explore.live_simulation import Simulation, centre_of
from cic.explore.shapes import Figure, mixed

Doubles = npt.NDArray[np.float64]
LAG = 0.25
"""Share of the way to the body that the view goes in a frame."""


class Stage:
    """Drawn once, then moved. `place` is where in the scene it stands."""

    def __init__(self, scene: Any, name: str, figure: Figure, cell: float, place: Doubles, width: float | None) -> None:
        self._figure, self._cell, self._place = figure, cell, place
        self._root = scene.add_frame(f"/{name}", show_axes=False, position=tuple(place))
        self._floor = None
        if figure.floor is not None:
            size = {"infinite_grid": True} if width is None else {"width": 24 * cell, "height": width}
            self._floor = scene.add_grid(
                f"/{name}/floor",
                cell_size=cell,
                section_size=5 * cell,
                cell_color=(205, 210, 216),
                section_color=(160, 166, 174),
                plane_color=(236, 239, 242),
                plane_opacity=1.0,
                shadow_opacity=0.35,
                fade_distance=60 * cell,
                **size,
            )
        self._batches = []
        for batch in figure.batches:
            handle = scene.add_batched_meshes_simple(
                f"/{name}/{batch.name}",
                *batch.mesh,
                batched_wxyzs=np.tile([1.0, 0.0, 0.0, 0.0], (len(batch.geoms), 1)),
                batched_positions=np.zeros((len(batch.geoms), 3)),
                batched_scales=batch.scales.astype(np.float32),
                batched_colors=batch.colours,
                batched_opacities=None if (batch.opacities == 1).all() else batch.opacities,
                lod="off",
                side="double" if batch.name.startswith(("mesh", "plane")) else "front",
                cast_shadow=batch.name != "plane",
            )
            self._batches.append((batch, handle))
        self._centre: Doubles | None = None

    def draw(self, simulation: Simulation, share: float, follow: bool) -> None:
        """The body between its last two steps, `share` of the way."""
        poses = mixed(simulation.before, simulation.poses, share)
        self._move_view(centre_of(simulation.env.model, poses), follow)
        for batch, handle in self._batches:
            positions, turns = batch.placed(poses)
            handle.batched_positions = positions.astype(np.float32)
            handle.batched_wxyzs = turns.astype(np.float32)

    def _move_view(self, centre: Doubles, follow: bool) -> None:
        target = np.array([centre[0], centre[1], 0.0]) if follow and self._floor is not None else np.zeros(3)
        if self._centre is None or np.linalg.norm(target - self._centre) > 10 * self._cell:
            self._centre = target
        self._centre = self._centre + LAG * (target - self._centre)
        self._root.position = tuple(self._place - self._centre)
        if self._floor is not None:  # it goes along in whole sections, so that it never ends and still passes by
            section = 5 * self._cell
            there = np.round(self._centre / section) * section
            self._floor.position = (there[0], there[1], self._figure.floor)

    def remove(self) -> None:
        self._root.remove()
