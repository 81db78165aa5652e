"""What pre-training saw, paid by the task: steps that cost nothing, for a critic that would else know only its own.

The rewards that the finetuning has met are regressed on the observations that they came with, and every step of the
pre-training gets the reward that this says. It is told anew whenever half as much again is known. Rewards must follow
from the observation; what they do not say of it, the regression leaves out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.types import Array, Batch, Spaces
from cic.learning.replay import Replay
from cic.training.reward_model import fitted, standardiser

Arrays = dict[str, npt.NDArray[Any]]

SHARE = 0.5  # of each batch, unless asked otherwise
LATEST = 300_000  # steps of a pre-training that a finetuning takes along
UPDATES = 1_000  # of a regression
GROWTH = 1.5  # how much more must be known before the next


def experienced(replay: Arrays) -> Arrays:
    """A replay's saved state → its latest steps, copy after copy and episode after episode.

    `final` marks the last observation of an episode, and of a copy, behind which nothing is known.
    """
    copies, filled = replay["obs"].shape[:2]
    kept = min(filled, -(-LATEST // copies))
    parts: dict[str, list[npt.NDArray[Any]]] = {"obs": [], "action": [], "terminated": [], "final": []}
    for copy, written in enumerate(replay["written"]):
        newest = int(written)
        order = np.arange(max(newest - kept, 0), newest) % filled
        final = replay["skill_id"][copy, order] < 0
        final[-1:] = True
        for name in ("obs", "action", "terminated"):
            parts[name].append(replay[name][copy, order])
        parts["final"].append(final)
    return {name: np.concatenate(rows) for name, rows in parts.items()}


class Prior:
    """A pre-training's steps, to be sampled like one's own once they have rewards."""

    def __init__(self, steps: Arrays, spaces: Spaces, skill_dim: int, nstep: int, gamma: float) -> None:
        _require_steps(steps, spaces)
        self.replay = Replay.of(
            steps["obs"], steps["action"], steps["terminated"], steps["final"], skill_dim, nstep, gamma
        )
        if not self.replay.ready():
            raise UserError(f"the pre-training's episodes are shorter than {nstep} steps: add --prior-data 0")
        self._standardised = standardiser(steps["obs"])
        self.known = 0
        """Steps whose rewards said what these are worth."""

    def due(self, steps: int) -> bool:
        """Is so much more known by now that rewards should be told anew?"""
        return steps >= GROWTH * self.known

    def label(self, obs: Array, reward: Array, seed: int) -> None:
        """Rewards for all steps, from observations (N, obs) and the rewards (N,) that came with them."""
        self.known = len(obs)
        usable = np.isfinite(reward)
        if not usable.any():
            return
        predict = fitted(self._standardised(obs[usable]), reward[usable], UPDATES, seed)
        self.replay.reward[:-1] = predict(self._standardised(self.replay.obs[1:]))  # it comes with the next observation

    def sample(self, batch: int, rng: np.random.Generator) -> Batch:
        return self.replay.sample(batch, rng)

    def state(self) -> Arrays:
        return {"prior_reward": self.replay.reward, "prior_known": np.array([self.known])}

    def restore(self, arrays: Arrays) -> None:
        self.replay.reward[:], self.known = arrays["prior_reward"], int(arrays["prior_known"][0])


def _require_steps(steps: Arrays, spaces: Spaces) -> None:
    count = len(steps.get("obs", ()))
    shapes = {"obs": (count, spaces.obs), "action": (count, spaces.action), "terminated": (count,), "final": (count,)}
    fits = steps.keys() == shapes.keys() and all(steps[name].shape == shape for name, shape in shapes.items())
    if not fits or not count or not (np.isfinite(steps["obs"]).all() and np.isfinite(steps["action"]).all()):
        raise UserError("the steps of the pre-training do not fit its agent: add --prior-data 0")
