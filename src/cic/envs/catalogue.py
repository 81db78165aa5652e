"""The table of built-in domains. It imports neither numpy nor Gymnasium nor MuJoCo, so that `cic envs` is fast.

A test builds every model and compares the numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from cic.core.paper_scores import experts


class Quantity(NamedTuple):
    """A number that describes a state: its name, and its place in the observation or the simulator state."""

    name: str
    unit: str
    entries: tuple[int, ...]
    """One entry, or the cosine and the sine of an angle, which is then in degrees."""
    low: float | None = None
    high: float | None = None
    """The range in which it is counted and drawn; values outside belong to the first or last cell."""
    physics: bool = False
    """Entries of `physics()` rather than of the observation."""
    scale: float = 1.0
    bins: int = 20
    """Cells between `low` and `high`."""

    @property
    def label(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name


class View(NamedTuple):
    """One plot: a quantity over time, or against another quantity."""

    y: Quantity
    x: Quantity | None = None
    title: str = ""
    smooth: float = 0.0
    """Seconds of a running mean, for quantities that oscillate with every stride."""


CORNERS = ("reach_top_left", "reach_top_right", "reach_bottom_left", "reach_bottom_right")


class DomainInfo(NamedTuple):
    """One domain: a body, its world, and its tasks."""

    name: str
    tasks: tuple[str, ...]
    obs: int
    action: int
    episode_length: int
    coverage: tuple[Quantity, ...]
    """The two or three quantities of the observation on which state coverage is counted."""
    about: str
    module: str
    """The module with `create(name, task, num_envs, seed, threads)`."""
    plane: tuple[int, ...] = ()
    """The entries of the observation with the position of the body, if any."""
    cell: float | None = None
    """The side length of the cells of that plane in which papers count coverage, if they do."""

    @property
    def experts(self) -> dict[str, float | None]:
        """The score of an expert on each task, which normalises returns; None if unknown."""
        return {task: experts().get(f"{self.name}-{task}") for task in self.tasks}


DOMAINS = {
    info.name: info
    for info in (
        DomainInfo(
            "walker",
            ("stand", "walk", "run", "flip"),
            24,
            6,
            1000,
            (
                Quantity("torso angle", "°", (0, 1), -180.0, 180.0),
                Quantity("height", "m", (14,), 0.0, 1.6),
                Quantity("speed", "m/s", (16,), -3.0, 3.0),
            ),
            "planar biped (URLB)",
            "cic.envs.suite.walker",
        ),
        DomainInfo(
            "quadruped",
            ("stand", "walk", "run", "jump"),
            78,
            12,
            1000,
            (
                Quantity("uprightness", "", (47,), -1.0, 1.0),
                Quantity("forward speed", "m/s", (44,), -3.0, 3.0),
                Quantity("sideways speed", "m/s", (45,), -3.0, 3.0),
            ),
            "four-legged ant-like body (URLB)",
            "cic.envs.suite.quadruped",
        ),
        DomainInfo(
            "jaco",
            CORNERS,
            55,
            9,
            250,
            (
                Quantity("hand x", "m", (30,), -0.4, 0.4),
                Quantity("hand y", "m", (31,), -0.4, 0.4),
                Quantity("hand height", "m", (32,), 0.0, 0.6),
            ),
            "robot arm with a hand, reaching for a brick (URLB)",
            "cic.envs.suite.jaco",
        ),
        DomainInfo(
            "point_mass",
            ("easy", *CORNERS),
            4,
            2,
            1000,
            (Quantity("x", "m", (0,), -0.29, 0.29), Quantity("y", "m", (1,), -0.29, 0.29)),
            "a ball pushed about a square",
            "cic.envs.suite.point_mass",
            plane=(0, 1),
        ),
        DomainInfo(
            "hopper",
            ("stand", "hop"),
            15,
            4,
            1000,
            (Quantity("height", "m", (0,), -1.0, 1.0), Quantity("torso angle", "rad", (1,), -6.3, 6.3)),
            "planar one-legged body",
            "cic.envs.suite.hopper",
        ),
        DomainInfo(
            "gridworld",
            CORNERS,
            2,
            2,
            50,
            (Quantity("x", "", (0,), -1.0, 1.0, bins=10), Quantity("y", "", (1,), -1.0, 1.0, bins=10)),
            "10×10 cells, four moves",
            "cic.envs.gridworld",
            plane=(0, 1),
        ),
        DomainInfo(
            "ant",
            ("forward", "backward", "left", "right"),
            29,
            8,
            200,
            (Quantity("x", "m", (0,), -20.0, 20.0), Quantity("y", "m", (1,), -20.0, 20.0)),
            "Gymnasium's ant, its position observed (METRA, CSF)",
            "cic.envs.suite.ant",
            plane=(0, 1),
            cell=1.0,
        ),
        DomainInfo(
            "half_cheetah",
            ("forward", "backward"),
            18,
            6,
            200,
            (Quantity("x", "m", (0,), -40.0, 40.0), Quantity("torso angle", "rad", (2,), -3.2, 3.2)),
            "Gymnasium's half cheetah, its position observed (METRA, CSF)",
            "cic.envs.suite.half_cheetah",
            plane=(0,),
            cell=1.0,
        ),
    )
}


def names() -> list[str]:
    """The names of all built-in environments: each domain (reward-free) and each of its tasks."""
    return [
        name for domain in DOMAINS.values() for name in (domain.name, *(f"{domain.name}-{t}" for t in domain.tasks))
    ]
