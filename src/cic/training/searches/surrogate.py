"""Bayesian optimisation: a Gaussian process over skill space, and next the candidate that promises most (UCB)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from cic.training.searches.base import Candidate, Search, register_search

Doubles = npt.NDArray[np.float64]


@register_search
class Surrogate(Search):
    name = "surrogate"
    fits = ("box", "cube", "normal", "sphere", "onehot")

    def propose(self) -> Iterator[Candidate]:
        space, steps = self.problem.space, self.problem.config.trial_steps
        count = self.count(steps)
        for index in range(count):
            candidates = space.sample(256 if index >= min(8, count // 2) else 1, self.rng)
            if len(candidates) > 1:
                tried = np.stack([trial.skill for trial in self.trials])
                scores = np.array(self.scores())
                usable = np.isfinite(scores)
                if usable.any():
                    mean, std = posterior(tried[usable], scores[usable], candidates)
                    candidates = candidates[np.argmax(mean + std)][None]
            yield candidates[0], steps


def posterior(x: npt.NDArray[np.floating], y: Doubles, new: npt.NDArray[np.floating]) -> tuple[Doubles, Doubles]:
    """Mean and standard deviation at `new` of a process with a squared exponential kernel.

    Its squared length is the median squared distance of the points, its noise a fifth of the scores' variance.
    """
    scale = y.std() or 1.0
    gaps = _squares(x, x)
    length = np.median(gaps[gaps > 0]) if (gaps > 0).any() else 1.0
    kernel = np.exp(-gaps / length) + 0.2 * np.eye(len(x))
    across = np.exp(-_squares(new, x) / length)
    solved = np.linalg.solve(kernel, across.T)  # (N, new)
    mean = y.mean() + solved.T @ (y - y.mean())
    variance = np.clip(1 - (across.T * solved).sum(axis=0), 0, None)
    return mean, scale * np.sqrt(variance)


def _squares(a: npt.NDArray[np.floating], b: npt.NDArray[np.floating]) -> Doubles:
    return np.asarray(((a[:, None].astype(np.float64) - b[None]) ** 2).sum(axis=-1))
