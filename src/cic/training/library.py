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

Doubles = npt.NDArray[np.float64]


STATES = 64  # of a path that are kept


class Library(NamedTuple):
    """K skills and states along the path of each, evenly spaced from its first to its last."""

    skills: Array  # (K, dim)
    paths: Array  # (K, STATES, obs)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return self._asdict()

    @property
    def ends(self) -> Array:
        """(K, T/2, obs): the second half of each path, which is where a skill gets to."""
        return self.paths[:, self.paths.shape[1] // 2 :]


def checked(arrays: dict[str, npt.NDArray[Any]], dim: int, obs: int) -> Library | None:
    """A library as it was saved; None if there is none, refused if it is not of this agent."""
    if not arrays:
        return None
    skills, paths = arrays.get("skills"), arrays.get("paths")
    if (
        arrays.keys() != {"skills", "paths"}
        or skills is None
        or paths is None
        or skills.ndim != 2
        or paths.ndim != 3
        or len(skills) != len(paths)
        or (skills.shape[1], paths.shape[2]) != (dim, obs)
        or not (np.isfinite(skills).all() and np.isfinite(paths).all())
    ):
        raise UserError("the skill library does not fit its agent: choose a search that does without it")
    return Library(skills.astype(np.float32), paths.astype(np.float32))


def from_replay(replay: Replay, count: int, steps: int) -> Library | None:
    """The latest `count` skills that acted for at least `steps` steps in one piece; None if there are none."""
    skills, paths = [], []
    for skill, path in replay.skill_paths():
        if len(path) > steps:
            skills.append(skill)
            paths.append(path[np.linspace(0, steps, STATES).round().astype(np.int64)])
        if len(skills) == count:
            break
    return Library(np.stack(skills), np.stack(paths)) if skills else None


def spread(library: Library, count: int) -> npt.NDArray[np.int64]:
    """Skills that lead to places far from each other: each is the one farthest from those before it."""
    features = _standardised(library.ends.mean(axis=1), library)
    chosen = [int(np.linalg.norm(features - features.mean(axis=0), axis=1).argmin())]
    nearest = np.linalg.norm(features - features[chosen[0]], axis=1)
    while len(chosen) < min(count, len(features)):
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, np.linalg.norm(features - features[chosen[-1]], axis=1))
    return np.array(chosen)


def predicted_scores(library: Library, obs: Array, reward: Array, neighbours: int = 3) -> Doubles:
    """(K,): the mean reward over the second half of each skill's path, by nearest neighbours among labelled states."""
    known = _standardised(obs, library)
    asked = _standardised(library.ends.reshape(-1, library.paths.shape[-1]), library)
    values = np.concatenate([_nearest_mean(part, known, reward, neighbours) for part in np.array_split(asked, 16)])
    return np.asarray(values.reshape(len(library.skills), -1).mean(axis=1))


def _nearest_mean(asked: Doubles, known: Doubles, reward: Array, neighbours: int) -> Doubles:
    k = min(neighbours, len(known))
    distances = (asked**2).sum(axis=1)[:, None] + (known**2).sum(axis=1) - 2 * asked @ known.T
    nearest = np.argpartition(distances, k - 1, axis=1)[:, :k]
    return np.asarray(reward[nearest].mean(axis=1), np.float64)


def _standardised(states: Array, library: Library) -> Doubles:
    """By the library's own mean and spread, so that no unit of measurement outweighs the others."""
    every = library.paths.reshape(-1, library.paths.shape[-1]).astype(np.float64)
    spread = every.std(axis=0)
    return np.asarray((states - every.mean(axis=0)) / np.where(spread > 1e-6, spread, 1.0))
