"""Pre-training replay, relabelled with predicted task rewards, for a finetuning that samples a share of each batch
from it.

A regression on the observations and rewards of the finetuning predicts the reward of every pre-training step. Rewards
are re-predicted whenever the labelled data grows by 50 %. The data are not used until the next prediction if

- the rewards so far are constant: their prediction teaches nothing and hides that most states are unknown;
- the reward depends on the action, which the next observation shows in part only: the regression explains less than
  `GOOD_R2` of the variance of held-out rewards, and one on (s, a, s') leaves at most half as much unexplained;
- the pre-training did not reach what the task needs: `BEST` of its predicted rewards are below the mean reward of the
  finetuning's latest steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.types import Array, Batch, Spaces
from cic.learning.replay import Replay
from cic.training.reward_model import fitted, held_out_r2, standardiser

Arrays = dict[str, npt.NDArray[Any]]

SHARE = 0.5  # default share of each batch
LATEST = 300_000  # pre-training steps that a finetuning keeps
UPDATES = 1_000  # of the regression
GOOD_R2 = 0.9  # held-out R² from which the next observation is enough to predict rewards (results/prior-data)
BEST = 0.99  # quantile of the predicted rewards that the finetuning's own rewards are compared with
GROWTH = 1.5  # growth of the labelled data after which rewards are re-predicted


def latest_steps(replay: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Return the latest records of a checkpoint's replay, environment after environment.

    `episode_end` marks the last observation of each episode and of each environment.
    """
    loaded = Replay.load(replay)
    episodes = list(loaded.episodes(partial=True, latest=-(-LATEST // loaded.num_envs)))
    lengths = [len(episode) + 1 for episode in episodes]
    steps = {
        "obs": np.concatenate([episode.observation for episode in episodes] or [loaded.obs[:0]]),
        "action": np.zeros((sum(lengths), loaded.action.shape[1]), np.float32),
        "terminated": np.zeros(sum(lengths), np.bool_),
        "episode_end": np.zeros(sum(lengths), np.bool_),
    }
    for episode, stop in zip(episodes, np.cumsum(lengths), strict=True):
        steps["action"][stop - len(episode) - 1 : stop - 1] = episode.action
        steps["terminated"][max(stop - 2, 0)] |= episode.terminated
        steps["episode_end"][stop - 1] = True
    return steps


class RelabelledReplay:
    """Steps of the pre-training, sampled like a replay once they are labelled."""

    def __init__(self, steps: Arrays, spaces: Spaces, skill_dim: int, nstep: int, gamma: float) -> None:
        _require_steps(steps, spaces)
        self.replay = Replay.from_steps(**steps, skill_dim=skill_dim, nstep=nstep, gamma=gamma)
        if not self.replay.ready():
            raise UserError(f"the pre-training's episodes are shorter than {nstep} steps: set `prior_data=0`")
        self._standardised = standardiser(steps["obs"])
        self.known = 0
        """Labelled steps that the predicted rewards were fitted to."""
        self.r2 = 1.0
        """Held-out R² of the predicted rewards."""
        self.usable = True
        """Whether the predicted rewards are good enough to learn from."""

    def due(self, steps: int) -> bool:
        """Whether the labelled data has grown so much that rewards should be re-predicted."""
        return steps >= GROWTH * self.known

    def label(
        self, obs: Array, action: Array, next_obs: Array, reward: Array, seed: int, latest: Array | None = None
    ) -> str:
        """Predict the rewards of all steps from transitions (N, …) with rewards (N,).

        `latest` are the rewards of the latest steps, by default all. Returns why the predicted rewards should not be
        used, or "".
        """
        self.known = len(obs)
        usable = np.isfinite(reward)
        if not usable.any():
            return ""
        reward, after = reward[usable], self._standardised(next_obs[usable])
        self.r2 = held_out_r2(after, reward, UPDATES, seed)
        predict = fitted(after, reward, UPDATES, seed)
        self.replay.reward[:-1] = predict(self._standardised(self.replay.obs[1:]))  # of the next observation
        reason = ""
        if np.ptp(reward) <= 1e-9 * np.abs(reward).max():
            reason = "all rewards so far are equal"
        elif self.r2 < GOOD_R2:
            whole = np.concatenate([self._standardised(obs[usable]), action[usable], after], axis=1)
            if 1 - held_out_r2(whole, reward, UPDATES, seed) <= (1 - self.r2) / 2:
                reason = (
                    f"the reward depends on the action: the next observation explains {self.r2:.0%} of the variance "
                    "of held-out rewards, with the action much more"
                )
        if not reason:
            best, own = np.quantile(self.replay.reward[:-1], BEST), np.mean(reward if latest is None else latest)
            if best < own:
                reason = (
                    f"the pre-training did not reach what the task needs: {BEST:.0%} of its steps have a reward below "
                    f"{best:.3g}, and the mean of the latest steps is {own:.3g}"
                )
        self.usable = not reason
        return reason

    def sample(self, batch: int, rng: np.random.Generator) -> Batch:
        return self.replay.sample(batch, rng)

    def state(self) -> Arrays:
        numbers = {"prior_known": np.array([self.known]), "prior_r2": np.array([self.r2])}
        return {"prior_reward": self.replay.reward, "prior_usable": np.array([self.usable])} | numbers

    def restore(self, arrays: Arrays) -> None:
        self.replay.reward[:], self.known = arrays["prior_reward"], int(arrays["prior_known"][0])
        self.r2, self.usable = float(arrays["prior_r2"][0]), bool(arrays["prior_usable"][0])


def _require_steps(steps: Arrays, spaces: Spaces) -> None:
    count = len(steps.get("obs", ()))
    shapes: dict[str, tuple[int, ...]] = {"obs": (count, spaces.obs), "action": (count, spaces.action)}
    shapes |= {"terminated": (count,), "episode_end": (count,)}
    fits = steps.keys() == shapes.keys() and all(steps[name].shape == shape for name, shape in shapes.items())
    if not fits or not count or not (np.isfinite(steps["obs"]).all() and np.isfinite(steps["action"]).all()):
        raise UserError("the steps of the pre-training do not fit its agent: set `prior_data=0`")
