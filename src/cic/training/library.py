"""A skill library: what many skills do, without reward, so that a task's reward can be told for all of them at once.

A few rewarded steps label states; a regression of reward on state then scores every skill of the library by the states
that it leads to, without a step in the environment. Trials one after another score a skill by where the one before it
stopped; labelled states do not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.types import Array
from cic.learning.replay import Replay
from cic.runs.untrusted import Misfit, require_arrays
from cic.training.checkpoint_checks import need
from cic.training.reward_model import Doubles, fitted, standardiser

STATES = 64  # of a path that are kept
UPDATES = 300  # of each network of the regression
EVERY = 4  # how many of them, and of labelled states, stand for each other when distances are asked for


class Library(NamedTuple):
    """P paths, the skill of each and states along it, evenly spaced from its first to its last.

    A skill may have several, from different starts.
    """

    skills: Array  # (P, dim)
    paths: Array  # (P, STATES, obs)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return self._asdict()

    @property
    def ends(self) -> Array:
        """(P, T/2, obs): the second half of each path, which is where a skill gets to."""
        return self.paths[:, self.paths.shape[1] // 2 :]

    @property
    def candidates(self) -> Array:
        """(K, dim): its different skills."""
        return np.unique(self.skills, axis=0)

    def per_skill(self, of_paths: npt.NDArray[Any]) -> Doubles:
        """(K,): the mean over the paths of each candidate."""
        _, skill, paths = np.unique(self.skills, axis=0, return_inverse=True, return_counts=True)
        return np.bincount(skill.reshape(-1), of_paths, len(paths)) / paths


def checked(arrays: dict[str, npt.NDArray[Any]], dim: int, obs: int) -> Library | None:
    """A library as it was saved; None if there is none, refused if it is not of this agent."""
    if not arrays:
        return None
    try:
        require_arrays(arrays, {"skills": "float paths dim", "paths": "float paths states obs"}, dim=dim, obs=obs)
        need(arrays["paths"].size > 0, "it is empty")
    except Misfit as error:
        raise UserError(f"the skill library does not fit its agent ({error}): choose another search") from None
    return Library(arrays["skills"].astype(np.float32), arrays["paths"].astype(np.float32))


def from_replay(replay: Replay, count: int, steps: int) -> Library | None:
    """The latest `count` paths on which a skill acted for at least `steps` steps in one piece; None without any."""
    skills, paths = [], []
    for skill, path in replay.skill_paths():
        if len(path) > steps:
            skills.append(skill)
            paths.append(path[np.linspace(0, steps, STATES).round().astype(np.int64)])
        if len(skills) == count:
            break
    return Library(np.stack(skills), np.stack(paths)) if skills else None


def distances(library: Library, obs: Array) -> Doubles:
    """(K,): how far the second half of each skill's paths lies from what is known, a mean of distances to the nearest.

    Known are the states `obs` (N, obs) and those in which the skills began.
    """
    standardised = standardiser(library.paths)
    known = standardised(np.concatenate([library.paths[:, 0], obs[::EVERY]]))
    asked = standardised(library.ends[:, ::EVERY])  # (P, T, obs)
    squares = (known**2).sum(axis=1) - 2 * asked @ known.T  # (P, T, N), less the square of what is asked
    nearest = squares.min(axis=-1) + (asked**2).sum(axis=-1)
    return library.per_skill(np.sqrt(np.maximum(nearest, 0)).mean(axis=1))


def predicted_scores(library: Library, obs: Array, reward: Array) -> Doubles:
    """(K,): the mean reward over the second half of each skill's paths, by a regression on labelled states.

    It is the mean of three small networks. Nearest neighbours know no direction: where rewards grow towards a place
    that no trial has reached, they cannot say so.
    """
    usable = np.isfinite(reward)
    if not usable.any():
        return np.zeros(len(library.candidates))
    standardised = standardiser(library.paths)
    predict = fitted(standardised(obs[usable]), reward[usable], UPDATES, seed=0, networks=3)
    return library.per_skill(predict(standardised(library.ends)).mean(axis=1))
