"""One agent on a viewer's stage: its simulation, its drawing and the time that it has come to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cic.core.types import Array
from cic.explore.live_simulation import Simulation
from cic.explore.loaded_agent import Subject
from cic.explore.shapes import Figure, figure
from cic.explore.stage import Stage

MOST_STEPS = 5
"""In one frame: a machine that is too slow shows a slower world, not an ever older one."""


class Lane:
    def __init__(self, subject: Subject, skill: Array, seed: int) -> None:
        self.subject = subject
        self.simulation = Simulation(subject, skill, seed)
        self.figure: Figure = figure(self.simulation.env.model)
        self.stage: Stage | None = None
        self.time = 0.0
        """Simulated seconds since the last reset, as far as drawn."""
        self._stepped = 0.0

    @property
    def on_floor(self) -> bool:
        return self.figure.floor is not None

    @property
    def extent(self) -> float:
        """How much room it takes: the body, or the whole scene where that is bounded."""
        poses = self.simulation.poses
        return self.simulation.size if self.on_floor else float(np.abs(poses.positions[:, :2]).max() * 2)

    def set_stage(self, scene: object, name: str, place: npt.NDArray[np.float64], width: float | None) -> None:
        if self.stage is not None:
            self.stage.remove()
        cell = max(self.simulation.size / 5, 0.05)
        self.stage = Stage(scene, name, self.figure, cell, place, width)

    def reset(self, seed: int | None = None) -> None:
        self.simulation.reset(seed)
        self.time = self._stepped = 0.0

    def advance(self, seconds: float) -> bool:
        """Let simulated time go on. True if the episode came to its end and a new one began."""
        self.time += seconds
        for _ in range(MOST_STEPS):
            if self._stepped >= self.time:
                return False
            self.simulation.step()
            self._stepped += self.simulation.seconds
            if self.simulation.steps == 0:
                self.time = self._stepped = 0.0
                return True
        self.time = min(self.time, self._stepped)
        return False

    def draw(self, follow: bool) -> None:
        assert self.stage is not None
        behind = (self._stepped - self.time) / self.simulation.seconds
        self.stage.draw(self.simulation, float(np.clip(1 - behind, 0.0, 1.0)), follow)

    def close(self) -> None:
        self.simulation.close()
