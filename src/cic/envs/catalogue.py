"""The table of built-in domains. It imports neither numpy nor Gymnasium nor MuJoCo, so that `cic envs` is fast.

A test builds every model and compares the numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from cic.core.named_quantities import NamedQuantity, Quantities
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
    quantities: Quantities = ()
    """What the objective `steer` commands and prompts name."""
    behaviours: tuple[tuple[str, str], ...] = ()
    """Names of common behaviours, and their rewards as formulas of the quantities."""

    @property
    def experts(self) -> dict[str, float | None]:
        """The score of an expert on each task, which normalises returns; None if unknown."""
        return {task: experts().get(f"{self.name}-{task}") for task in self.tasks}


_WALKER = (
    NamedQuantity("speed", "obs[16]", "m/s", 3.0, low=-3.0, high=3.0),
    NamedQuantity("upright", "obs[0]", "", 1.0, squash=False, low=-1.0, high=1.0),
    NamedQuantity("height", "obs[14]", "m", 0.6, 0.7, squash=False, low=0.0, high=1.6),
    NamedQuantity("spin", "obs[17]", "rad/s", 5.0, low=-10.0, high=10.0),
)
# With scales of 2 m/s and 2 rad/s, turning in place has the larger reward, and no skill walks (results/steering).
_QUADRUPED = (
    NamedQuantity("speed", "obs[44]", "m/s", 0.5, low=-3.0, high=3.0),
    NamedQuantity("sideways", "obs[45]", "m/s", 0.5, low=-3.0, high=3.0),
    NamedQuantity("upright", "obs[47]", "", 1.0, squash=False, low=-1.0, high=1.0),
    NamedQuantity("turn", "obs[53]", "rad/s", 4.0, low=-4.0, high=4.0),
)
_JACO = (
    NamedQuantity("hand_x", "obs[30]", "m", 0.4, squash=False, low=-0.4, high=0.4),
    NamedQuantity("hand_y", "obs[31]", "m", 0.4, squash=False, low=-0.4, high=0.4),
    NamedQuantity("hand_z", "obs[32]", "m", 0.3, 0.3, squash=False, low=0.0, high=0.6),
    NamedQuantity(
        "away", "obs[30] ** 2 + obs[31] ** 2 + (obs[32] - 0.3) ** 2", "m²", 0.15, 0.15, squash=False, low=0.0, high=0.3
    ),
)
_POINT_MASS = (
    NamedQuantity("x", "obs[0]", "m", 0.3, squash=False, low=-0.3, high=0.3),
    NamedQuantity("y", "obs[1]", "m", 0.3, squash=False, low=-0.3, high=0.3),
    NamedQuantity("away", "obs[0] ** 2 + obs[1] ** 2", "m²", 0.09, 0.09, squash=False, low=0.0, high=0.18),
)
_HOPPER = (
    NamedQuantity("speed", "obs[6]", "m/s", 2.0, low=-3.0, high=3.0),
    NamedQuantity("upright", "cos(obs[1])", "", 1.0, squash=False, low=-1.0, high=1.0),
    NamedQuantity("height", "obs[0]", "m", 0.5, -0.5, low=-1.0, high=1.0),
    NamedQuantity("spin", "obs[8]", "rad/s", 5.0, low=-10.0, high=10.0),
)
_GRIDWORLD = (
    NamedQuantity("x", "obs[0]", "", 1.0, squash=False, low=-1.0, high=1.0),
    NamedQuantity("y", "obs[1]", "", 1.0, squash=False, low=-1.0, high=1.0),
    NamedQuantity("away", "obs[0] ** 2 + obs[1] ** 2", "", 1.0, 1.0, squash=False, low=0.0, high=2.0),
)
_ANT = (
    NamedQuantity("speed_x", "0.8 * obs[15]", "m/s", 1.0, low=-3.0, high=3.0),
    NamedQuantity("speed_y", "0.8 * obs[16]", "m/s", 1.0, low=-3.0, high=3.0),
    NamedQuantity("upright", "1 - 2 * (obs[4] ** 2 + obs[5] ** 2)", "", 1.0, squash=False, low=-1.0, high=1.0),
    NamedQuantity("turn", "1.85 * obs[20]", "rad/s", 2.0, low=-4.0, high=4.0),
)
_HALF_CHEETAH = (
    NamedQuantity("speed", "0.75 * obs[9]", "m/s", 3.0, low=-6.0, high=6.0),
    NamedQuantity("upright", "cos(obs[2])", "", 1.0, squash=False, low=-1.0, high=1.0),
    NamedQuantity("spin", "1.6 * obs[11]", "rad/s", 5.0, low=-10.0, high=10.0),
    NamedQuantity("height", "obs[1]", "m", 0.3, low=-0.6, high=0.6),
)

_WALKER_BEHAVIOURS = (
    ("stand", "height + upright"),
    ("walk", "speed / 3 + upright + height"),
    ("backward", "-speed / 2 + upright"),
    ("sit", "upright - 2 * height"),
    ("lie", "-height"),
    ("flip", "spin / 5 + height / 2"),
)
_QUADRUPED_BEHAVIOURS = (
    ("stand", "upright"),
    ("forward", "speed + upright"),
    ("backward", "-speed + upright"),
    ("left", "sideways + upright"),
    ("right", "-sideways + upright"),
    ("turn", "turn + upright"),
    ("on its back", "-upright"),
)
_CHEETAH_BEHAVIOURS = (
    ("run", "speed + upright"),
    ("backward", "-speed + upright"),
    ("flip", "spin"),
    ("upside down", "-upright"),
)
_HOPPER_BEHAVIOURS = (
    ("stand", "height + upright"),
    ("hop", "speed + height + upright"),
    ("lie", "-height"),
    ("flip", "spin"),
)
_ANT_BEHAVIOURS = (
    ("forward", "speed_x + upright"),
    ("backward", "-speed_x + upright"),
    ("left", "speed_y + upright"),
    ("right", "-speed_y + upright"),
    ("on its back", "-upright"),
)
_PLANE_BEHAVIOURS = (("centre", "-away"), ("top right", "x + y"), ("bottom left", "-x - y"))
_JACO_BEHAVIOURS = (("up", "hand_z"), ("down", "-hand_z"), ("centre", "-away"))

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
            quantities=_WALKER,
            behaviours=_WALKER_BEHAVIOURS,
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
            quantities=_QUADRUPED,
            behaviours=_QUADRUPED_BEHAVIOURS,
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
            quantities=_JACO,
            behaviours=_JACO_BEHAVIOURS,
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
            quantities=_POINT_MASS,
            behaviours=_PLANE_BEHAVIOURS,
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
            quantities=_HOPPER,
            behaviours=_HOPPER_BEHAVIOURS,
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
            quantities=_GRIDWORLD,
            behaviours=_PLANE_BEHAVIOURS,
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
            quantities=_ANT,
            behaviours=_ANT_BEHAVIOURS,
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
            quantities=_HALF_CHEETAH,
            behaviours=_CHEETAH_BEHAVIOURS,
        ),
    )
}


def names() -> list[str]:
    """The names of all built-in environments: each domain (reward-free) and each of its tasks."""
    return [
        name for domain in DOMAINS.values() for name in (domain.name, *(f"{domain.name}-{t}" for t in domain.tasks))
    ]
