"""One agent in the scene of a viewer: its simulation, its body and its floor.

The user controls the camera. To follow a body, the scene moves in the opposite direction below it, so that orbiting and
zooming stay smooth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.types import Array
from cic.explore.body_meshes import BodyMeshes, body_meshes, interpolate
from cic.explore.live_simulation import LiveSimulation, centre_of
from cic.explore.loaded_agent import LoadedAgent

Doubles = npt.NDArray[np.float64]
MAX_STEPS_PER_FRAME = 5
"""On a slow machine, simulated time slows down instead of falling behind."""
PICTURE_SIZE = 2.0
"""Longer side of a picture in the scene."""
FACING_UP = (0.0, 1.0, 0.0, 0.0)
FOLLOW_RATE = 0.25
"""Fraction of the distance to the body that the view moves per frame."""


class AgentPanel:
    def __init__(self, agent: LoadedAgent, skill: Array, seed: int) -> None:
        self.agent = agent
        self.simulation = LiveSimulation(agent, skill, seed)
        model = self.simulation.env.model
        self.meshes: BodyMeshes | None = None if model is None else body_meshes(model)
        self.scene: BodyScene | PictureScene | None = None
        self.prompt = ""
        """The formula that is followed."""
        self.time = 0.0
        """Simulated seconds since the last reset, as far as drawn."""
        self._simulated = 0.0

    @property
    def on_floor(self) -> bool:
        return self.meshes is not None and self.meshes.floor is not None

    @property
    def extent(self) -> float:
        """Size of the body, or of the whole scene if it is bounded or a picture."""
        if self.simulation.poses is None:
            return PICTURE_SIZE
        positions = self.simulation.poses.positions
        return self.simulation.size if self.on_floor else float(np.abs(positions[:, :2]).max() * 2)

    def add_to_scene(self, scene: Any, name: str, position: Doubles, width: float | None) -> None:
        if self.meshes is None:
            self.scene = PictureScene(scene, name, self.simulation, position)
            return
        self.scene = BodyScene(scene, name, self.meshes, max(self.simulation.size / 5, 0.05), position, width)

    def reset(self, seed: int | None = None) -> None:
        self.simulation.reset(seed)
        self.time = self._simulated = 0.0

    def advance(self, seconds: float) -> bool:
        """Advance simulated time; return whether a new episode has started."""
        self.time += seconds
        for _ in range(MAX_STEPS_PER_FRAME):
            if self._simulated >= self.time:
                return False
            self.simulation.step()
            self._simulated += self.simulation.seconds
            if self.simulation.steps == 0:
                self.time = self._simulated = 0.0
                return True
        self.time = min(self.time, self._simulated)
        return False

    def draw(self, follow: bool) -> None:
        assert self.scene is not None
        ahead = (self._simulated - self.time) / self.simulation.seconds
        self.scene.draw(self.simulation, float(np.clip(1 - ahead, 0.0, 1.0)), follow)

    def close(self) -> None:
        self.simulation.close()


class PictureScene:
    """The picture of an environment without a MuJoCo model, at a position of the scene."""

    def __init__(self, scene: Any, name: str, simulation: LiveSimulation, position: Doubles) -> None:
        assert simulation.picture is not None
        self._shown = simulation.picture
        height, width, _ = self._shown.shape
        size = PICTURE_SIZE / max(height, width)
        self._image = scene.add_image(
            f"/{name}", self._shown, width * size, height * size, wxyz=FACING_UP, position=tuple(position)
        )

    def draw(self, simulation: LiveSimulation, share: float, follow: bool) -> None:
        """Show the picture of the last step."""
        if simulation.picture is not None and simulation.picture is not self._shown:
            self._shown = self._image.image = simulation.picture


class BodyScene:
    """A body and its floor at a position of the scene."""

    def __init__(
        self, scene: Any, name: str, body: BodyMeshes, cell: float, position: Doubles, width: float | None
    ) -> None:
        self._body, self._cell, self._position = body, cell, position
        self._root = scene.add_frame(f"/{name}", show_axes=False, position=tuple(position))
        self._floor = None
        if body.floor is not None:
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
        self._handles = [
            scene.add_batched_meshes_simple(
                f"/{name}/{part.name}",
                *part.mesh,
                batched_wxyzs=np.tile([1.0, 0.0, 0.0, 0.0], (len(part.geoms), 1)),
                batched_positions=np.zeros((len(part.geoms), 3)),
                batched_scales=part.scales.astype(np.float32),
                batched_colors=part.colours,
                batched_opacities=None if (part.opacities == 1).all() else part.opacities,
                lod="off",
                side="double" if part.name.startswith(("mesh", "plane")) else "front",
                cast_shadow=part.name != "plane",
            )
            for part in body.meshes
        ]
        self._centre: Doubles | None = None

    def draw(self, simulation: LiveSimulation, share: float, follow: bool) -> None:
        """Draw the body between its last two steps."""
        assert simulation.before is not None
        assert simulation.poses is not None
        poses = interpolate(simulation.before, simulation.poses, share)
        self._move_view(centre_of(simulation.env.model, poses), follow)
        for part, handle in zip(self._body.meshes, self._handles, strict=True):
            positions, turns = part.placed(poses)
            handle.batched_positions = positions.astype(np.float32)
            handle.batched_wxyzs = turns.astype(np.float32)

    def _move_view(self, centre: Doubles, follow: bool) -> None:
        target = np.array([centre[0], centre[1], 0.0]) if follow and self._floor is not None else np.zeros(3)
        if self._centre is None or np.linalg.norm(target - self._centre) > 10 * self._cell:
            self._centre = target
        self._centre = self._centre + FOLLOW_RATE * (target - self._centre)
        self._root.position = tuple(self._position - self._centre)
        if self._floor is not None:  # the floor moves in whole sections, so that it has no end and still passes by
            section = 5 * self._cell
            x, y, _ = np.round(self._centre / section) * section
            self._floor.position = (x, y, self._body.floor)
