"""The base class of all environments: Gymnasium's vector API with `num_envs` parallel environments, no automatic reset.

`step` never resets. An environment whose episode is over must be reset with `reset(options={"reset_mask": done})`
before the next step, so the last observation of an episode is the one that `step` returned.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from cic.core.errors import UserError
from cic.core.named_quantities import Quantities
from cic.core.observations import Part
from cic.core.spaces import Layout
from cic.core.types import Array, Spaces
from cic.envs.catalogue import Quantity, View

if TYPE_CHECKING:
    from cic.envs.bodies import Poses

Bools = npt.NDArray[np.bool_]
State = dict[str, npt.NDArray[Any]]
MAX_NUM_ENVS = 10_000


class StepArrays(NamedTuple):
    """The five values that Gymnasium's `step` returns, with one entry per environment."""

    obs: Array  # (N, obs)
    reward: Array  # (N,)
    terminated: Bools  # (N,) a terminal state: discount 0
    truncated: Bools  # (N,) a time limit: bootstrap
    info: dict[str, Any]  # "rewards": {task: (N,)}, the reward of every task of the domain


class VectorEnv(gymnasium.vector.VectorEnv[Array, Array, npt.NDArray[Any]]):
    """`num_envs` parallel environments: observations (N, obs) float32, actions (N, action) float32 in [-1, 1].

    Discrete actions are one-hot vectors, see `Spaces`.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": ["rgb_array"]}  # noqa: RUF012

    name: str
    domain: str
    task: str | None
    tasks: tuple[str, ...]
    episode_length: int | None
    coverage: tuple[Quantity, ...] | None
    quantities: Quantities = ()
    """The named quantities; empty if the environment names none."""
    drawing: tuple[View, ...] = ()
    """The plots of an episode; empty if none are known."""
    exact_state = True
    """Whether `restore` continues bit-exactly. Otherwise it restarts the episodes (see `cic.envs.gym`)."""

    def __init__(
        self,
        name: str,
        obs: int,
        action: int,
        num_envs: int,
        low: float | Array = -np.inf,
        high: float | Array = np.inf,
        choices: tuple[int, ...] = (),
    ) -> None:
        check_num_envs(num_envs)
        self.name, self.num_envs = name, int(num_envs)
        self.single_observation_space = gymnasium.spaces.Box(low, high, (obs,), np.float32)
        self.single_action_space = gymnasium.spaces.Box(0.0 if choices else -1.0, 1.0, (action,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._shape, self._choices = (self.num_envs, action), choices
        self._steps = np.zeros(self.num_envs, np.int64)
        self._over = np.ones(self.num_envs, np.bool_)  # an environment that was never reset counts as over

    @property
    def spaces(self) -> Spaces:
        """The sizes of observations and actions."""
        obs: int = self.single_observation_space.shape[0]  # type: ignore[index]
        return Spaces(obs, self._shape[1], self._choices, self._observed_parts())

    def _observed_parts(self) -> tuple[Part, ...]:
        """The images and named parts of an observation."""
        return ()

    def states(self) -> Array | None:
        """(N, state): the states from which images are rendered; None if observations are states already."""
        return None

    @property
    def layout(self) -> Layout:
        """The spaces of one environment in its own units, for `agent.predict` and exported policies."""
        return Layout(self.single_observation_space, self.single_action_space)  # type: ignore[arg-type]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Reset the environments in `options["reset_mask"]`, by default all; environment i gets the seed `seed + i`."""
        self._check_open()
        mask = self._reset_mask(options)
        chosen = [int(i) for i in np.flatnonzero(mask)]
        if seed is not None:
            seeds = self._seeds(seed)
            for i in chosen:
                self._reseed(i, seeds[i])
        for i in chosen:
            self._begin(i)
        self._steps[mask] = 0
        self._over[mask] = False
        return self._observe(), {}

    @abstractmethod
    def step(self, actions: Array) -> StepArrays:
        """Step every environment once."""

    @abstractmethod
    def _reseed(self, index: int, seed: int) -> None:
        """Give one environment a new random generator."""

    @abstractmethod
    def _begin(self, index: int) -> None:
        """Reset one environment."""

    @abstractmethod
    def _observe(self) -> Array:
        """The current observations, in a new array."""

    @abstractmethod
    def state(self) -> State:
        """Everything that determines the future, as arrays with one row per environment. Reading it changes nothing."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Continue from the return value of `state`, in this or another process."""

    def physics(self) -> npt.NDArray[np.float64]:
        """(N, state): the state of each simulator (positions, velocities); empty by default."""
        return np.zeros((self.num_envs, 0))

    def set_physics(self, physics: npt.NDArray[np.float64], actions: Array | None = None) -> None:
        """Start an episode of each environment from a state (N, state) that `physics` returned.

        `actions` are those that led to it, zero by default: some rewards depend on them.
        """
        raise UserError(f"{self.name} cannot be set to a stored simulator state")

    def task_rewards(self) -> dict[str, Array]:
        """The reward (N,) of every task at the current states."""
        return {}

    # ---- bodies of MuJoCo environments -------------------------------------------------------------------------

    @property
    def model(self) -> Any:
        """The `MjModel`; None if the simulator is not MuJoCo."""
        return None

    @property
    def step_seconds(self) -> float:
        """Simulated time of a step."""
        raise UserError(f"{self.name} is not simulated by MuJoCo, so it has no body that can be shown")

    def poses(self, index: int = 0) -> Poses:
        """The poses of the geoms of one environment."""
        raise UserError(f"{self.name} is not simulated by MuJoCo, so it has no body that can be shown")

    def push(self, velocity: Any, index: int = 0) -> None:
        """Push the body of one environment with the impulse that gives a free body this `velocity` (3,)."""
        raise UserError(f"{self.name} is not simulated by MuJoCo, so it has no body that can be pushed")

    # ------------------------------------------------------------------------------------------------------------

    @abstractmethod
    def render(self, index: int = 0, width: int = 320, height: int = 240) -> npt.NDArray[np.uint8]:  # type: ignore[override]
        """An image of one environment, (height, width, 3)."""

    ghosts = (3, 0.12)
    """How many earlier states a filmstrip shows as ghosts behind each frame, and the seconds between them."""
    draws_states = False
    """Whether `draw` can show any state of `physics()`, and not only `render` the current one."""

    def draw(
        self, states: Sequence[npt.NDArray[np.float64]], width: int, height: int, *, plain: bool = False
    ) -> npt.NDArray[np.uint8]:
        """An image of the last of some states of `physics()`, with the earlier ones as ghosts.

        `plain` omits shadows, reflections and smooth edges, which is several times faster.
        """
        raise UserError(f"{self.name} can only draw its current state")

    def entry_names(self) -> list[str]:
        """The names of the observation's entries."""
        return [f"entry {index}" for index in range(self.spaces.obs)]

    def _check_actions(self, actions: Any) -> Array:
        """Check the actions and return them as float32 (N, action)."""
        self._check_open()
        if np.count_nonzero(self._over):
            raise UserError(
                f"{self.name}: environment {np.flatnonzero(self._over)[0]} was never reset or its episode has ended; "
                'call reset() or reset(options={"reset_mask": …}) before stepping'
            )
        return self._numbers(actions)

    def _numbers(self, actions: Any) -> Array:
        try:
            array = np.asarray(actions, np.float32)
        except (TypeError, ValueError) as error:
            raise UserError(f"{self.name}: actions must be numbers of shape {self._shape} ({error})") from None
        if array.shape != self._shape:
            raise UserError(f"{self.name}: actions have shape {array.shape}, expected {self._shape} (num_envs, action)")
        finite = np.isfinite(array)
        if np.count_nonzero(finite) < finite.size:
            index = int(np.argmin(finite.all(axis=1)))
            raise UserError(f"{self.name}: the action of environment {index} is not finite: {array[index].tolist()}")
        return array

    def _reset_mask(self, options: dict[str, Any] | None) -> Bools:
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        mask = np.asarray(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise UserError(f"{self.name}: reset_mask must be {self.num_envs} booleans, got {mask.dtype} {mask.shape}")
        return mask

    def _seeds(self, seed: Any) -> list[int]:
        """One seed per environment, from a single seed or a sequence."""
        seeds = [seed + i for i in range(self.num_envs)] if _is_whole(seed) else seed
        if (
            not isinstance(seeds, (list, tuple, np.ndarray))
            or len(seeds) != self.num_envs
            or not all(_is_whole(s) and 0 <= s < 2**32 for s in seeds)
        ):
            raise UserError(f"{self.name}: seed must be a whole number below 2³² for every environment, got {seed!r}")
        return [int(s) for s in seeds]

    def _check_open(self) -> None:
        if self.closed:
            raise UserError(f"{self.name}: the environment is closed")

    def _check_state(self, state: State, like: State) -> None:
        """Refuse the state of another environment before anything is loaded."""
        for key, array in like.items():
            if key not in state:
                raise UserError(f"{self.name}: the state has no {key!r}")
            if state[key].shape != array.shape:
                raise UserError(
                    f"{self.name}: the state's {key!r} has shape {state[key].shape}, expected {array.shape}"
                )

    def __repr__(self) -> str:
        return f"<{self.name}, num_envs={self.num_envs}>"


def check_num_envs(num_envs: Any) -> None:
    """Refuse anything but a possible number of parallel environments."""
    if not _is_whole(num_envs) or not 1 <= num_envs <= MAX_NUM_ENVS:
        raise UserError(f"num_envs must be a whole number of at least 1 and at most {MAX_NUM_ENVS:,}, got {num_envs!r}")


def _is_whole(number: Any) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)
