"""The contract of every environment here: Gymnasium's vector API, N copies stepped together, no automatic reset.

`step` never resets: a copy that ended must be reset with `reset(options={"reset_mask": ended})` before it steps again,
so the last observation of an episode is simply the observation that `step` returned.
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
from cic.core.types import Array, Spaces
from cic.envs.catalogue import Quantity, View

if TYPE_CHECKING:
    from cic.envs.bodies import Poses

Bools = npt.NDArray[np.bool_]
State = dict[str, npt.NDArray[Any]]
MOST_COPIES = 10_000


class StepArrays(NamedTuple):
    """What a step gives: Gymnasium's five, each with an entry per copy."""

    obs: Array  # (N, obs)
    reward: Array  # (N,)
    terminated: Bools  # (N,) a real end: discount 0
    truncated: Bools  # (N,) out of time: bootstrap through it
    info: dict[str, Any]  # "rewards": {task: (N,)}, what every task of the domain pays


class VectorEnv(gymnasium.vector.VectorEnv[Array, Array, npt.NDArray[Any]]):
    """N copies of one environment: observations (N, obs) float32, actions (N, action) float32 in [-1, 1]."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": ["rgb_array"]}  # noqa: RUF012

    name: str
    domain: str
    task: str | None
    tasks: tuple[str, ...]
    episode_length: int | None
    coverage: tuple[Quantity, ...] | None
    drawing: tuple[View, ...] = ()
    """What is worth drawing of an episode; nothing if that is not known."""
    exact_state = True
    """Whether `restore` continues bit for bit. Otherwise it restarts the episodes (see `cic.envs.gym`)."""

    def __init__(
        self,
        name: str,
        obs: int,
        action: int,
        num_envs: int,
        low: float | Array = -np.inf,
        high: float | Array = np.inf,
    ) -> None:
        _check_num_envs(num_envs)
        self.name, self.num_envs = name, int(num_envs)
        self.single_observation_space = gymnasium.spaces.Box(low, high, (obs,), np.float32)
        self.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (action,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._shape = (self.num_envs, action)
        self._steps = np.zeros(self.num_envs, np.int64)
        self._over = np.ones(self.num_envs, np.bool_)  # never reset counts as over

    @property
    def spaces(self) -> Spaces:
        """What an agent must know."""
        return Spaces(obs=self.single_observation_space.shape[0], action=self._shape[1])  # type: ignore[index]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start episodes in the copies of `options["reset_mask"]`, else in all; copy i is seeded with `seed + i`."""
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
        """One control step in every copy."""

    @abstractmethod
    def _reseed(self, index: int, seed: int) -> None:
        """Give one copy a new random generator."""

    @abstractmethod
    def _begin(self, index: int) -> None:
        """Start an episode in one copy."""

    @abstractmethod
    def _observe(self) -> Array:
        """The current observation of every copy, in a fresh array."""

    @abstractmethod
    def state(self) -> State:
        """Everything that the future depends on, as arrays with one row per copy."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Continue from what `state` returned, here or in another process."""

    def physics(self) -> npt.NDArray[np.float64]:
        """(N, state): what the simulator itself keeps of each copy (positions, velocities); none by default."""
        return np.zeros((self.num_envs, 0))

    # ---- a body to look at, where the physics is MuJoCo's ------------------------------------------------------

    @property
    def model(self) -> Any:
        """The `MjModel` of every copy; None where the physics is not MuJoCo's."""
        return None

    @property
    def step_seconds(self) -> float:
        """Simulated time of a step."""
        raise UserError(f"{self.name} is not simulated by MuJoCo, so it has no body that can be shown")

    def poses(self, index: int = 0) -> Poses:
        """Where the geoms of one copy are."""
        raise UserError(f"{self.name} is not simulated by MuJoCo, so it has no body that can be shown")

    def push(self, velocity: Any, index: int = 0) -> None:
        """Shove the body of one copy, as if by a kick that would give it `velocity` (3,) if nothing held it."""
        raise UserError(f"{self.name} is not simulated by MuJoCo, so it has no body that can be pushed")

    # ------------------------------------------------------------------------------------------------------------

    @abstractmethod
    def render(self, index: int = 0, width: int = 320, height: int = 240) -> npt.NDArray[np.uint8]:  # type: ignore[override]
        """A picture of one copy, (height, width, 3)."""

    ghosts = (3, 0.12)
    """How many earlier moments a filmstrip shows behind each of its own, and how many seconds lie between them."""
    draws_states = False
    """Whether `draw` can show any state of `physics()`, and not only `render` the current one."""

    def draw(
        self, states: Sequence[npt.NDArray[np.float64]], width: int, height: int, *, plain: bool = False
    ) -> npt.NDArray[np.uint8]:
        """A picture of the last of some states of `physics()`, with those before it as ghosts.

        `plain` does without shadows, reflections and smooth edges: several times faster.
        """
        raise UserError(f"{self.name} can only show the state that it is in")

    def entry_names(self) -> list[str]:
        """What each entry of the observation is called."""
        return [f"entry {index}" for index in range(self.spaces.obs)]

    def _check_actions(self, actions: Any) -> Array:
        """The actions as finite float32 (N, action), before anything moves."""
        self._check_open()
        if np.count_nonzero(self._over):
            raise UserError(
                f"{self.name}: copy {np.flatnonzero(self._over)[0]} has not been started or has ended; "
                'call reset() or reset(options={"reset_mask": …}) before stepping'
            )
        return self._numbers(actions)

    def _numbers(self, actions: Any) -> Array:
        try:
            array = np.asarray(actions, np.float32)
        except (TypeError, ValueError) as error:
            raise UserError(f"{self.name}: actions must be numbers of shape {self._shape} ({error})") from None
        if array.shape != self._shape:
            raise UserError(f"{self.name}: actions have shape {array.shape}, expected {self._shape} (copies, action)")
        finite = np.isfinite(array)
        if np.count_nonzero(finite) < finite.size:
            copy = int(np.argmin(finite.all(axis=1)))
            raise UserError(f"{self.name}: the action of copy {copy} is not finite: {array[copy].tolist()}")
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
        """One per copy, from one for all or from a sequence."""
        seeds = [seed + i for i in range(self.num_envs)] if _is_whole(seed) else seed
        if (
            not isinstance(seeds, (list, tuple, np.ndarray))
            or len(seeds) != self.num_envs
            or not all(_is_whole(s) and 0 <= s < 2**32 for s in seeds)
        ):
            raise UserError(f"{self.name}: seed must be a whole number below 2³² for every copy, got {seed!r}")
        return [int(s) for s in seeds]

    def _check_open(self) -> None:
        if self.closed:
            raise UserError(f"{self.name}: the environment is closed")

    def _check_state(self, state: State, like: State) -> None:
        """A state of other copies or another environment must not half-load."""
        for key, array in like.items():
            if key not in state:
                raise UserError(f"{self.name}: the state has no {key!r}")
            if state[key].shape != array.shape:
                raise UserError(
                    f"{self.name}: the state's {key!r} has shape {state[key].shape}, expected {array.shape}"
                )

    def __repr__(self) -> str:
        return f"<{self.name}, {self.num_envs} {'copy' if self.num_envs == 1 else 'copies'}>"


def _check_num_envs(num_envs: Any) -> None:
    if not _is_whole(num_envs) or not 1 <= num_envs <= MOST_COPIES:
        raise UserError(f"num_envs must be a whole number of at least 1 and at most {MOST_COPIES:,}, got {num_envs!r}")


def _is_whole(number: Any) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)
