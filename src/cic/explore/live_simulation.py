"""One environment with one agent and one skill, and the metrics of its last steps."""

from __future__ import annotations

import contextlib
from collections import deque

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.formula_reward import FormulaReward, quantity_values
from cic.core.named_quantities import Quantities
from cic.core.types import Array
from cic.envs.bodies import Poses, main_body
from cic.explore.live_metrics import LiveMetrics
from cic.explore.loaded_agent import LoadedAgent

METRICS_EVERY = 2
"""Steps between two evaluations of the metrics, which take as long as the rest of a step."""
MAX_QUANTITIES = 8
MAX_STEPS = 300
"""Number of last steps in plots, and in the paths of methods that need whole paths."""


PICTURE_SECONDS = 0.05
"""Time that a step takes on the page, in environments without a MuJoCo model."""


class LiveSimulation:
    """Used only by the thread of one viewer."""

    def __init__(self, agent: LoadedAgent, skill: Array, seed: int) -> None:
        self.agent, self.skill, self.seed = agent, skill, seed
        self.env = agent.make_env(seed=seed)
        if self.env.model is None:
            self.env.close()
            self.env = agent.make_env(seed=seed, pictures=True)
        try:
            self.seconds = PICTURE_SECONDS if self.env.model is None else self.env.step_seconds
            self.tasks = self.env.tasks or ("reward",)
            self.poses: Poses | None = None
            self.picture: npt.NDArray[np.uint8] | None = None
            self.metrics: LiveMetrics | None = None
            self.reward: FormulaReward | None = None
            """The prompted reward."""
            self.reset()
        except BaseException:
            self.env.close()
            raise

    def reset(self, seed: int | None = None) -> None:
        """Start a new episode from the initial state of the seed."""
        self.seed = self.seed if seed is None else seed
        self._obs, _ = self.env.reset(seed=self.seed)
        self.steps, self.returns = 0, dict.fromkeys(self.tasks, 0.0)
        self.times: deque[int] = deque(maxlen=MAX_STEPS)
        self.traces: dict[str, deque[float]] = {}
        self._begin_skill()
        self._look()
        self.before = self.poses

    def follow(self, skill: Array) -> None:
        """Continue with another skill."""
        if not np.array_equal(skill, self.skill):
            self.skill = skill
            self._begin_skill()

    def _begin_skill(self) -> None:
        self._path: deque[Array] = deque([self._obs[0].copy()], maxlen=MAX_STEPS + 1)
        self._actions: deque[Array] = deque(maxlen=MAX_STEPS)

    def step(self) -> None:
        action = self.agent.agent.act(self._obs, self.skill[None])
        self._obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        self.before = self.poses
        self._look()
        self._path.append(self._obs[0].copy())
        self._actions.append(action[0])
        rewards = {task: float(value[0]) for task, value in info.get("rewards", {"reward": reward}).items()}
        for task, value in rewards.items():
            self.returns[task] += value
        self.times.append(self.steps)
        seen = {f"task/{task}": value for task, value in rewards.items()}
        seen |= self._quantities()
        if self.metrics is not None and self.steps % METRICS_EVERY == 0:
            seen |= self.metrics.compute(self._path, self._actions, self.skill)
        for name, value in seen.items():
            trace = self.traces.setdefault(name, deque([np.nan] * (len(self.times) - 1), maxlen=MAX_STEPS))
            trace.append(value)
        for name in self.traces.keys() - seen.keys():
            self.traces[name].append(np.nan)
        if terminated[0] or truncated[0]:
            self.reset()

    def _look(self) -> None:
        """Read the poses of the body, or the picture of an environment without a MuJoCo model."""
        if self.env.model is None:
            self.picture = np.ascontiguousarray(self.env.render())
        else:
            self.poses = self.env.poses()

    def _quantities(self) -> dict[str, float]:
        """The named quantities and the prompted reward at the current state."""
        values = quantity_values(self.quantities, self._obs[:1])
        seen = {f"quantity/{name}": float(value[0]) for name, value in values.items()}
        if self.reward is not None:
            with contextlib.suppress(UserError):  # not finite at this state: a gap in the plot
                seen["prompt"] = float(self.reward(self._obs[:1])[0])
        return seen

    @property
    def quantities(self) -> Quantities:
        """The quantities that are plotted."""
        return self.agent.agent.quantities[:MAX_QUANTITIES]

    def push(self, direction: npt.NDArray[np.float64]) -> None:
        self.env.push(2 * self.size * direction)

    @property
    def size(self) -> float:
        """Approximate size of the body in metres, for pushes and the distance of the camera."""
        return body_size(self.env.model)

    def close(self) -> None:
        self.env.close()


def body_size(model: object) -> float:
    """Return the extent of the moving geoms in the initial pose, at least 20 cm."""
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    moving = np.flatnonzero(model.body_treeid[model.geom_bodyid] == model.body_treeid[main_body(model)])  # type: ignore[attr-defined]
    points, reach = data.geom_xpos[moving], model.geom_rbound[moving]  # type: ignore[attr-defined]
    if not len(moving):
        return 0.2
    low, high = (points - reach[:, None]).min(axis=0), (points + reach[:, None]).max(axis=0)
    return max(float((high - low).max()), 0.2)


def centre_of(model: object, poses: Poses) -> npt.NDArray[np.float64]:
    """Return the centre of the moving body."""
    return np.asarray(poses.positions[model.geom_bodyid == main_body(model)].mean(axis=0))  # type: ignore[attr-defined]
