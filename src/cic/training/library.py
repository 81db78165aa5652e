"""A skill library: recorded trajectories of many skills, so that a task's reward can be predicted for all of them.

A few rewarded steps label states; a regression of reward on state then scores every skill of the library by the states
that it visits, without a step in the environment. Unlike scores of consecutive trials, these scores do not depend on
where the previous trial stopped.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.types import Array
from cic.learning.replay import Replay
from cic.runs.untrusted import Misfit, require_arrays
from cic.training.checkpoint_checks import need
from cic.training.reward_model import Doubles, fitted, standardiser

STATES = 64  # per stored path
UPDATES = 300  # gradient steps of each network of the regression
EVERY = 4  # only every 4th state of paths and labels is used for distances


class Library(NamedTuple):
    """P paths: the skill of each and evenly spaced states from its first to its last.

    A skill may have several paths, from different initial states.
    """

    skills: Array  # (P, dim)
    paths: Array  # (P, STATES, obs)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return self._asdict()

    @property
    def ends(self) -> Array:
        """(P, T/2, obs): the second half of each path, in which a skill has reached its target."""
        return self.paths[:, self.paths.shape[1] // 2 :]

    @property
    def candidates(self) -> Array:
        """(K, dim): the distinct skills."""
        return np.unique(self.skills, axis=0)

    def per_skill(self, of_paths: npt.NDArray[Any]) -> Doubles:
        """(K,): the mean over the paths of each candidate."""
        _, skill, paths = np.unique(self.skills, axis=0, return_inverse=True, return_counts=True)
        return np.bincount(skill.reshape(-1), of_paths, len(paths)) / paths


def checked(arrays: dict[str, npt.NDArray[Any]], dim: int, obs: int) -> Library | None:
    """Read a saved library; None if there is none. Raise a `UserError` if it does not fit the agent."""
    if not arrays:
        return None
    try:
        require_arrays(arrays, {"skills": "float paths dim", "paths": "float paths states obs"}, dim=dim, obs=obs)
        need(arrays["paths"].size > 0, "it is empty")
    except Misfit as error:
        raise UserError(f"the skill library does not fit its agent ({error}): choose another search") from None
    return Library(arrays["skills"].astype(np.float32), arrays["paths"].astype(np.float32))


def from_replay(replay: Replay, count: int, steps: int) -> Library | None:
    """The latest `count` paths of skills that were active for at least `steps` consecutive steps.

    If all paths are shorter, because episodes are, the longest ones count. None without any path.
    """
    if not (found := _latest(replay, count, steps)):
        steps = max((len(path) for _, path in replay.skill_paths()), default=0) - 1
        found = _latest(replay, count, steps) if steps > 0 else []
    return _library(found, steps)


def _latest(replay: Replay, count: int, steps: int) -> list[tuple[Array, Array]]:
    return list(islice((one for one in replay.skill_paths() if len(one[1]) > steps), count))


def recorded(replay: Replay, count: int, starts: int, steps: int) -> Library | None:
    """The paths of the latest `count` skills, of each the longest `starts`: shorter than `steps` if episodes are."""
    of_skill: dict[bytes, list[tuple[int, Array, Array]]] = {}
    for place, (skill, path) in enumerate(replay.skill_paths()):
        if skill.tobytes() not in of_skill and len(of_skill) == count:
            break
        of_skill.setdefault(skill.tobytes(), []).append((place, skill, path))
    kept = [
        one for paths in of_skill.values() for one in sorted(paths, key=lambda one: -len(one[2][: steps + 1]))[:starts]
    ]
    return _library([(skill, path) for _, skill, path in sorted(kept, key=lambda one: one[0])], steps)


def _library(paths: list[tuple[Array, Array]], steps: int) -> Library | None:
    """The first `steps` of each path, or all of a shorter one."""
    if not paths:
        return None
    states = [path[np.linspace(0, min(steps, len(path) - 1), STATES).round().astype(np.int64)] for _, path in paths]
    return Library(np.stack([skill for skill, _ in paths]), np.stack(states))


def distances(library: Library, obs: Array) -> Doubles:
    """(K,): the mean distance from the second half of each skill's paths to the nearest known state.

    Known states are `obs` (N, obs) and the initial states of the paths.
    """
    standardised = standardiser(library.paths)
    known = standardised(np.concatenate([library.paths[:, 0], obs[::EVERY]]))
    asked = standardised(library.ends[:, ::EVERY])  # (P, T, obs)
    squares = (known**2).sum(axis=1) - 2 * asked @ known.T  # (P, T, N), without the squared norm of `asked`
    nearest = squares.min(axis=-1) + (asked**2).sum(axis=-1)
    return library.per_skill(np.sqrt(np.maximum(nearest, 0)).mean(axis=1))


def predicted_scores(library: Library, obs: Array, reward: Array) -> Doubles:
    """(K,): the mean reward over the second half of each skill's paths, by a regression on labelled states.

    The regression is the mean of three small networks. Unlike nearest neighbours, it can extrapolate rewards that grow
    towards states which no trial has reached.
    """
    usable = np.isfinite(reward)
    if not usable.any():
        return np.zeros(len(library.candidates))
    standardised = standardiser(library.paths)
    predict = fitted(standardised(obs[usable]), reward[usable], UPDATES, seed=0, networks=3)
    return library.per_skill(predict(standardised(library.ends)).mean(axis=1))
