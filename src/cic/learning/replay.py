"""What was experienced: a ring of steps per environment copy, sampled as n-step transitions.

A copy's stream is a sequence of records. A record holds an observation and what followed it (action, reward,
termination, skill); an episode of T steps is T + 1 records, the last holding only the final observation. A sample
starts at any record whose next n records belong to the same episode:

    obs s_t, action a_t, reward Σ_{i<n} γ^i r_{t+i}, discount γ^n (0 if s_{t+n} is terminal), next_obs s_{t+n},
    skill z_t

so samples cross neither an episode's end nor the ring's write position, and an episode that runs into its time limit
is bootstrapped through. Episodes shorter than n steps are never sampled. Skills are kept once, however long they last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cic.core.errors import UserError
from cic.core.types import Array, Batch, Spaces

Bools = npt.NDArray[np.bool_]


class Replay:
    """A ring of `capacity` records, shared evenly by `num_envs` copies that write side by side."""

    def __init__(
        self, spaces: Spaces, skill_dim: int, capacity: int, num_envs: int = 1, nstep: int = 3, gamma: float = 0.99
    ) -> None:
        self.slots = capacity // num_envs
        if self.slots <= nstep:
            raise UserError(
                f"a replay of {capacity} steps is too small for {num_envs} environments and {nstep}-step returns"
            )
        self.num_envs, self.nstep, self.gamma = num_envs, nstep, gamma
        records = num_envs * self.slots
        self.obs = np.zeros((records, spaces.obs), np.float32)
        self.action = np.zeros((records, spaces.action), np.float32)
        self.reward = np.zeros(records, np.float32)
        self.terminated = np.zeros(records, np.bool_)
        self.valid = np.zeros(records, np.bool_)  # may a sample start here?
        self.skill_id = np.zeros(records, np.int64)  # ~id marks an episode's final observation
        self.skills = np.zeros((64, skill_dim), np.float32)  # ring of distinct skills, row = id % len
        self.next_skill_id = 0
        self.written = np.zeros(num_envs, np.int64)  # records ever written, per copy
        self.age = np.zeros(num_envs, np.int64)  # records of the copy's current episode
        self.last_skill = np.full((num_envs, skill_dim), np.nan, np.float32)
        self.last_skill_id = np.full(num_envs, -1, np.int64)
        self._base = np.arange(num_envs) * self.slots
        self._discounts = (gamma ** np.arange(nstep)).astype(np.float32)
        self._offsets = np.arange(nstep + 1)
        self._buffers: dict[int, Batch] = {}

    def __len__(self) -> int:
        """Records held."""
        return int(np.minimum(self.written, self.slots).sum())

    # ---- writing -----------------------------------------------------------------------------------------------

    def add(self, obs: Array, skill: Array, action: Array, reward: Array, terminated: Bools) -> None:
        """One step of every copy: what was seen, what was done, what came of it."""
        copies = np.arange(self.num_envs)
        at = self._advance(copies, obs)
        self.action[at] = action
        self.reward[at] = reward
        self.terminated[at] = terminated
        self.skill_id[at] = self._intern(skill)

    def finish(self, obs: Array, done: Bools) -> None:
        """The final observation of the copies that are `done`; their next record begins a new episode."""
        copies = np.flatnonzero(done)
        at = self._advance(copies, obs[copies])
        self.skill_id[at] = ~self.last_skill_id[copies]
        self.age[copies] = 0

    def _advance(self, copies: npt.NDArray[np.int64], obs: Array) -> npt.NDArray[np.int64]:
        position = self.written[copies] % self.slots
        at = self._base[copies] + position
        self.obs[at] = obs
        self.valid[at] = False
        complete = self.age[copies] >= self.nstep
        start = self._base[copies] + (position - self.nstep) % self.slots
        self.valid[start[complete]] = True
        self.written[copies] += 1
        self.age[copies] += 1
        return at

    def _intern(self, skill: Array) -> npt.NDArray[np.int64]:
        changed = np.flatnonzero((skill != self.last_skill).any(axis=1) | (self.last_skill_id < 0))
        for copy in changed:
            self._make_room()
            self.skills[self.next_skill_id % len(self.skills)] = skill[copy]
            self.last_skill[copy] = skill[copy]
            self.last_skill_id[copy] = self.next_skill_id
            self.next_skill_id += 1
        return self.last_skill_id

    def _make_room(self) -> None:
        """Double the ring of skills when its next row still belongs to a record that can be sampled."""
        oldest_record = self._base + np.where(self.written > self.slots, self.written % self.slots, 0)
        alive = self.written > 0
        ids = self.skill_id[oldest_record][alive]
        oldest = int(np.where(ids < 0, ~ids, ids).min(initial=self.next_skill_id))
        size = len(self.skills)
        if self.next_skill_id - oldest < size:
            return
        ids = np.arange(oldest, self.next_skill_id)
        grown = np.zeros((2 * size, self.skills.shape[1]), np.float32)
        grown[ids % (2 * size)] = self.skills[ids % size]
        self.skills = grown

    # ---- sampling ----------------------------------------------------------------------------------------------

    def sample(self, batch: int, rng: np.random.Generator) -> Batch:
        """Uniform over every valid start. The tensors are reused by the next call with the same batch size."""
        return self.gather(self._draw(batch, rng))

    def ready(self) -> bool:
        return bool(self.valid.any())

    def _draw(self, batch: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        if not self.ready():
            raise UserError("the replay holds no complete sample yet: collect more steps before updating")
        filled = np.minimum(self.written, self.slots)
        ends = np.cumsum(filled)
        single = self.num_envs == 1

        def draw(count: int) -> npt.NDArray[np.int64]:
            flat = rng.integers(ends[-1], size=count)
            if single:
                return flat
            copy = np.searchsorted(ends, flat, side="right")
            starts: npt.NDArray[np.int64] = flat - (ends - filled)[copy] + self._base[copy]
            return starts

        starts = draw(batch)
        bad = np.flatnonzero(~self.valid[starts])
        while len(bad):  # about n + 1 of an episode's records are no start
            starts[bad] = draw(len(bad))
            bad = bad[~self.valid[starts[bad]]]
        return starts

    def gather(self, starts: npt.NDArray[np.int64]) -> Batch:
        """The n-step transitions that start at these records."""
        batch = self._buffer(len(starts))
        copy, position = np.divmod(starts, self.slots)
        window = (position[:, None] + self._offsets) % self.slots + (copy * self.slots)[:, None]  # (B, n + 1)
        following = np.ascontiguousarray(window[:, -1])
        np.take(self.obs, starts, axis=0, out=batch.obs.numpy(), mode="clip")
        np.take(self.obs, following, axis=0, out=batch.next_obs.numpy(), mode="clip")
        np.take(self.action, starts, axis=0, out=batch.action.numpy(), mode="clip")
        np.take(self.skills, self.skill_id[starts] % len(self.skills), axis=0, out=batch.skill.numpy(), mode="clip")
        np.matmul(self.reward[window[:, :-1]], self._discounts[:, None], out=batch.reward.numpy())
        batch.discount.numpy()[:, 0] = np.where(self.terminated[window[:, -2]], 0.0, self.gamma**self.nstep)
        return batch

    def _buffer(self, size: int) -> Batch:
        if size not in self._buffers:
            obs, action, skill = self.obs.shape[1], self.action.shape[1], self.skills.shape[1]
            self._buffers[size] = Batch(
                obs=torch.empty(size, obs),
                action=torch.empty(size, action),
                reward=torch.empty(size, 1),
                discount=torch.empty(size, 1),
                next_obs=torch.empty(size, obs),
                skill=torch.empty(size, skill),
            )
        return self._buffers[size]

    def latest(self, steps: int) -> Array:
        """Observations of each copy's latest `steps` steps, ends of episodes included."""
        rows = []
        for copy in range(self.num_envs):
            newest = int(self.written[copy])
            span = np.arange(max(newest - min(2 * steps, self.slots), 0), newest)  # an episode ends with a record more
            at = self._base[copy] + span % self.slots
            since = np.cumsum(self.skill_id[at[::-1]] >= 0)[::-1]  # steps from here to the newest
            rows.append(at[since <= steps])
        found: Array = self.obs[np.concatenate(rows)]
        return found

    # ---- one-step view, for regressing skills from rewards ------------------------------------------------------

    def recent(self, steps: int) -> tuple[Array, Array]:
        """(next_obs, reward) of up to `steps` latest steps of each copy, newest last within a copy."""
        rows = []
        for copy in range(self.num_envs):
            newest = int(self.written[copy])
            span = np.arange(max(newest - min(steps + 1, self.slots), 0), newest)
            rows.append(self._base[copy] + span % self.slots)
        at = np.concatenate([row[:-1] for row in rows])
        after = np.concatenate([row[1:] for row in rows])
        inside = self.skill_id[at] >= 0
        return self.obs[after[inside]], self.reward[at[inside], None]

    # ---- checkpoints -------------------------------------------------------------------------------------------

    _SMALL = ("skills", "written", "age", "last_skill", "last_skill_id")
    _RECORDS = ("obs", "action", "reward", "terminated", "valid", "skill_id")

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything, as arrays; only the filled part of the ring."""
        filled = int(min(self.written.max(initial=0), self.slots))
        state = {name: getattr(self, name) for name in self._SMALL}
        for name in self._RECORDS:
            full = getattr(self, name)
            state[name] = full.reshape(self.num_envs, self.slots, *full.shape[1:])[:, :filled]
        return state | {"next_skill_id": np.array([self.next_skill_id])}

    def restore(self, state: dict[str, npt.NDArray[Any]]) -> None:
        self.skills = np.array(state["skills"])
        for name in self._SMALL[1:]:
            getattr(self, name)[...] = state[name]
        for name in self._RECORDS:
            full = getattr(self, name)
            filled = state[name].shape[1]
            full.reshape(self.num_envs, self.slots, *full.shape[1:])[:, :filled] = state[name]
        self.next_skill_id = int(state["next_skill_id"][0])
