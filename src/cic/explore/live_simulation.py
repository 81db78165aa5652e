"""One copy of an environment under one agent and one skill, step by step, and what was seen of it lately."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from cic.core.types import Array
from cic.envs.bodies import Poses, main_body
from cic.explore.judging import Judge
from cic.explore.loaded_agent import Subject

JUDGED = 2
"""Every so many steps: it costs as much as the rest of a step."""
LONGEST = 300
"""Steps that plots show, and that a method which looks at whole paths is given."""


class Simulation:
    """Owned by one viewer's thread: nobody else touches it."""

    def __init__(self, subject: Subject, skill: Array, seed: int) -> None:
        self.subject, self.skill, self.seed = subject, skill, seed
        self.env = subject.make_env(seed=seed)
        try:
            if self.env.model is None:
                self.env.poses()  # says why not
            self.seconds = self.env.step_seconds
            self.tasks = self.env.tasks or ("reward",)
            self.judge: Judge | None = None
            self.reset()
        except BaseException:
            self.env.close()
            raise

    def reset(self, seed: int | None = None) -> None:
        """A new episode from the seed's start."""
        self.seed = self.seed if seed is None else seed
        self._obs, _ = self.env.reset(seed=self.seed)
        self.steps, self.returns = 0, dict.fromkeys(self.tasks, 0.0)
        self.times: deque[int] = deque(maxlen=LONGEST)
        self.traces: dict[str, deque[float]] = {}
        self._begin_skill()
        self.before = self.poses = self.env.poses()

    def follow(self, skill: Array) -> None:
        """Act by another skill from here on."""
        if not np.array_equal(skill, self.skill):
            self.skill = skill
            self._begin_skill()

    def _begin_skill(self) -> None:
        self._path: deque[Array] = deque([self._obs[0].copy()], maxlen=LONGEST + 1)
        self._actions: deque[Array] = deque(maxlen=LONGEST)

    def step(self) -> None:
        action = self.subject.agent.act(self._obs, self.skill[None])
        self._obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        self.before, self.poses = self.poses, self.env.poses()
        self._path.append(self._obs[0].copy())
        self._actions.append(action[0])
        paid = {task: float(value[0]) for task, value in info.get("rewards", {"reward": reward}).items()}
        for task, value in paid.items():
            self.returns[task] += value
        self.times.append(self.steps)
        seen = {f"task/{task}": value for task, value in paid.items()}
        if self.judge is not None and self.steps % JUDGED == 0:
            judged = self.judge.judge(self._path, self._actions, self.skill)
            seen |= judged
        for name, value in seen.items():
            trace = self.traces.setdefault(name, deque([np.nan] * (len(self.times) - 1), maxlen=LONGEST))
            trace.append(np.nan if value is None else value)
        for name in self.traces.keys() - seen.keys():
            self.traces[name].append(np.nan)
        if terminated[0] or truncated[0]:
            self.reset()

    def push(self, direction: npt.NDArray[np.float64]) -> None:
        self.env.push(2 * self.size * direction)

    @property
    def size(self) -> float:
        """About how large the body is, in metres: how hard a push is, and how far the camera stands off."""
        return body_size(self.env.model)

    def close(self) -> None:
        self.env.close()


def body_size(model: object) -> float:
    """The reach of the moving tree's geoms in its initial pose; a tiny body counts as 20 cm."""
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
    """Where the moving body is, as a camera would follow it."""
    return np.asarray(poses.positions[model.geom_bodyid == main_body(model)].mean(axis=0))  # type: ignore[attr-defined]
