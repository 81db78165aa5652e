"""What was experienced: a ring of steps per environment copy, sampled as n-step transitions.

A copy's stream is a sequence of records. A record holds an observation and what followed it (action, reward,
termination, skill); an episode of T steps is T + 1 records, the last holding only the final observation. A sample
starts at any record whose next n records belong to the same episode:

    obs s_t, action a_t, reward Σ_{i<n} γ^i r_{t+i}, discount γ^n (0 if s_{t+n} is terminal), next_obs s_{t+n},
    skill z_t

so samples cross neither an episode's end nor the ring's write position, and an episode that runs into its time limit
is bootstrapped through. Episodes shorter than n steps are never sampled. Skills are kept once, however long they last.
An objective that declares `Needs` gets more with each transition: where its skill began and led, goals further on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cic.core.errors import UserError
from cic.core.types import Array, Batch, Bools, Needs, Spaces

Integers = npt.NDArray[np.int64]
PLAIN = Needs()


class Replay:
    """A ring of `capacity` records, shared evenly by `num_envs` copies that write side by side."""

    def __init__(
        self,
        spaces: Spaces,
        skill_dim: int,
        capacity: int,
        num_envs: int = 1,
        nstep: int = 3,
        gamma: float = 0.99,
        tasks: int = 0,
        physics: int = 0,
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
        self.task_rewards = np.zeros((records, tasks), np.float32)  # of every task that the environment reports
        self.physics = np.zeros((records, physics), np.float64)  # the simulator's state at the observation, if kept
        self.terminated = np.zeros(records, np.bool_)
        self.valid = np.zeros(records, np.bool_)  # may a sample start here?
        self.skill_id = np.zeros(records, np.int64)  # ~id marks an episode's final observation
        self.begins = np.zeros(records, np.bool_)  # was this record's skill drawn here?
        self.skills = np.zeros((64, skill_dim), np.float32)  # ring of distinct skills, row = id % len
        self.next_skill_id = 0
        self.written = np.zeros(num_envs, np.int64)  # records ever written, per copy
        self.age = np.zeros(num_envs, np.int64)  # records of the copy's current episode
        self.last_skill = np.full((num_envs, skill_dim), np.nan, np.float32)
        self.last_skill_id = np.full(num_envs, -1, np.int64)
        self._base = np.arange(num_envs) * self.slots
        self._discounts = (gamma ** np.arange(nstep)).astype(np.float32)
        self._offsets = np.arange(nstep + 1)

    @classmethod
    def of(
        cls, obs: Array, action: Array, terminated: Bools, final: Bools, skill_dim: int, nstep: int, gamma: float
    ) -> Replay:
        """Steps of others, in order; `final` marks observations behind which nothing is known. Rewards are 0."""
        spaces = Spaces(obs.shape[1], action.shape[1])
        replay = cls(spaces, skill_dim, max(len(obs), nstep + 1), nstep=nstep, gamma=gamma)
        ends = np.concatenate([[0], np.cumsum(final)])  # final observations before each record
        starts = np.arange(max(len(obs) - nstep, 0))
        replay.valid[starts] = ends[starts + nstep] == ends[starts]
        for name, values in (("obs", obs), ("action", action), ("terminated", terminated)):
            getattr(replay, name)[: len(values)] = values
        replay.written[:] = len(obs)
        return replay

    def __len__(self) -> int:
        """Records held."""
        return int(np.minimum(self.written, self.slots).sum())

    # ---- writing -----------------------------------------------------------------------------------------------

    def add(
        self,
        obs: Array,
        skill: Array,
        action: Array,
        reward: Array,
        terminated: Bools,
        *,
        begins: Bools | None = None,
        task_rewards: Array | None = None,
        physics: npt.NDArray[np.float64] | None = None,
    ) -> None:
        """One step of every copy: what was seen, what was done, what came of it.

        `begins` marks the copies whose skill was drawn at this observation, even if the same one came again.
        """
        copies = np.arange(self.num_envs)
        first = self.age == 0
        at = self._advance(copies, obs)
        self.action[at] = action
        self.reward[at] = reward
        self.terminated[at] = terminated
        if task_rewards is not None:
            self.task_rewards[at] = task_rewards
        if physics is not None:
            self.physics[at] = physics
        changed = (skill != self.last_skill).any(axis=1) | (self.last_skill_id < 0)
        self.begins[at] = first | changed | (False if begins is None else begins)
        self.skill_id[at] = self._intern(skill, np.flatnonzero(changed))

    def finish(self, obs: Array, done: Bools, physics: npt.NDArray[np.float64] | None = None) -> None:
        """The final observation of the copies that are `done`; their next record begins a new episode."""
        copies = np.flatnonzero(done)
        at = self._advance(copies, obs[copies])
        if physics is not None:
            self.physics[at] = physics[copies]
        self.skill_id[at] = ~self.last_skill_id[copies]
        self.begins[at] = False
        self.age[copies] = 0

    def _advance(self, copies: Integers, obs: Array) -> Integers:
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

    def _intern(self, skill: Array, changed: Integers) -> Integers:
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

    def sample(self, batch: int, rng: np.random.Generator, needs: Needs = PLAIN) -> Batch:
        """Uniform over every valid start, with the extras that an objective needs."""
        starts = self._draw(batch, rng)
        return self.gather(starts)._replace(extras=self._extras(starts, rng, needs))

    def ready(self) -> bool:
        return bool(self.valid.any())

    def _draw(self, batch: int, rng: np.random.Generator) -> Integers:
        if not self.ready():
            raise UserError("the replay holds no complete sample yet: collect more steps before updating")
        starts = self._uniform(batch, rng)
        bad = np.flatnonzero(~self.valid[starts])
        while len(bad):  # about n + 1 of an episode's records are no start
            starts[bad] = self._uniform(len(bad), rng)
            bad = bad[~self.valid[starts[bad]]]
        return starts

    def _uniform(self, count: int, rng: np.random.Generator) -> Integers:
        """Records drawn from all that are held."""
        filled = np.minimum(self.written, self.slots)
        ends = np.cumsum(filled)
        flat = rng.integers(ends[-1], size=count)
        copy = np.searchsorted(ends, flat, side="right")
        records: Integers = flat - (ends - filled)[copy] + self._base[copy]
        return records

    def gather(self, starts: Integers) -> Batch:
        """The n-step transitions that start at these records."""
        copy, position = np.divmod(starts, self.slots)
        window = (position[:, None] + self._offsets) % self.slots + (copy * self.slots)[:, None]  # (B, n + 1)
        rewards = (self.reward[window[:, :-1]] * self._discounts).sum(axis=1, keepdims=True)
        ended = self.terminated[window[:, -2]]
        return Batch(
            obs=_rows(self.obs, starts),
            action=_rows(self.action, starts),
            reward=torch.from_numpy(rewards),
            discount=torch.from_numpy(np.where(ended, 0.0, self.gamma**self.nstep).astype(np.float32)[:, None]),
            next_obs=_rows(self.obs, window[:, -1]),
            skill=_rows(self.skills, self.skill_id[starts] % len(self.skills)),
        )

    # ---- what objectives may need beyond that ------------------------------------------------------------------

    def _extras(self, starts: Integers, rng: np.random.Generator, needs: Needs) -> dict[str, Tensor]:
        extras: dict[str, Tensor] = {}
        if needs.skill_start or needs.path:
            first, last, over = self._skill_span(starts)
            if needs.skill_start:
                extras["first_obs"] = _rows(self.obs, self._at(starts, first))
                ends = over & (last <= self._place(starts) + self.nstep)
                extras["skill_end"] = torch.from_numpy(ends.astype(np.float32)[:, None])
            if needs.path:
                share = np.linspace(0, 1, needs.path)
                places = first[:, None] + np.rint(share * (last - first)[:, None]).astype(np.int64)  # (B, path)
                extras["path"] = _rows(self.obs, self._at(starts[:, None], places))
        if needs.goals:
            _, last, _ = self._span(starts, self._episode_begins())
            ahead = self._place(starts) + rng.geometric(needs.goals, len(starts))
            extras["goal"] = _rows(self.obs, self._at(starts, np.minimum(ahead, last)))
            anywhere = self._uniform(len(starts), rng)
            extras["random_goal"] = _rows(self.obs, anywhere)
        return extras

    def _skill_span(self, starts: Integers) -> tuple[Integers, Integers, Bools]:
        """Of each start's skill: the places of its first and last observation, and whether it is over.

        Where another skill takes over within the episode, the observation at which it does is the last of the first.
        """
        first, last, closed = self._span(starts, self.begins)
        following = self._at(starts, np.minimum(last + 1, self._filled(starts) - 1))
        handed_over = closed & ~self._episode_begins()[following]
        finished = self.skill_id[self._at(starts, last)] < 0
        return first, last + handed_over, closed | finished

    def _span(self, starts: Integers, begins: Bools) -> tuple[Integers, Integers, Bools]:
        """Of each start: the places of the first and last record of its segment, and whether another follows.

        A place counts from the oldest record that its copy still holds; what was overwritten is forgotten.
        """
        first, last = np.zeros_like(starts), np.zeros_like(starts)
        closed = np.zeros(len(starts), np.bool_)
        places, copies = self._place(starts), starts // self.slots
        for copy in np.unique(copies):
            mine = copies == copy
            order = self._at(np.array([copy * self.slots]), np.arange(min(self.written[copy], self.slots)))
            edges = np.flatnonzero(begins[order][1:]) + 1
            segment = np.searchsorted(edges, places[mine], side="right")
            bounds = np.concatenate([[0], edges, [len(order)]])
            first[mine], last[mine], closed[mine] = bounds[segment], bounds[segment + 1] - 1, segment < len(edges)
        return first, last, closed

    def _episode_begins(self) -> Bools:
        """Per record: does an episode begin here, that is, behind a final observation?"""
        final = (self.skill_id < 0).reshape(self.num_envs, self.slots)
        return np.roll(final, 1, axis=1).ravel()

    def _oldest(self, copies: Integers) -> Integers:
        return np.where(self.written[copies] > self.slots, self.written[copies] % self.slots, 0)

    def _filled(self, records: Integers) -> Integers:
        return np.minimum(self.written[records // self.slots], self.slots)

    def _place(self, records: Integers) -> Integers:
        copies, position = np.divmod(records, self.slots)
        return (position - self._oldest(copies)) % self.slots

    def _at(self, records: Integers, places: Integers) -> Integers:
        """The records at these places of the copies to which `records` belong."""
        copies = records // self.slots
        return copies * self.slots + (self._oldest(copies) + places) % self.slots

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

    def skill_paths(self) -> Iterator[tuple[Array, Array]]:
        """(dim,) and (T + 1, obs): each skill that is over and what it led through, the latest first."""
        found = []
        for copy in np.flatnonzero(self.written > 0):
            order = self._at(np.array([copy * self.slots]), np.arange(min(self.written[copy], self.slots)))
            begins = np.flatnonzero(self.begins[order])
            first, last, over = self._skill_span(order[begins])
            recency = len(order) - last
            found += [(recency[i], order[first[i] : last[i] + 1]) for i in np.flatnonzero(over)]
        for _, records in sorted(found, key=lambda one: one[0]):
            yield self.skills[self.skill_id[records[0]] % len(self.skills)], self.obs[records]

    # ---- one-step view, for regressing skills from rewards ------------------------------------------------------

    def recent(self, steps: int, task: int | None = None) -> tuple[Array, Array]:
        """(next_obs, reward) of up to `steps` latest steps of each copy, newest last within a copy.

        The reward is the environment's own, or that of the task at a place in `task_rewards`.
        """
        rows = []
        for copy in range(self.num_envs):
            newest = int(self.written[copy])
            span = np.arange(max(newest - min(steps + 1, self.slots), 0), newest)
            rows.append(self._base[copy] + span % self.slots)
        at = np.concatenate([row[:-1] for row in rows])
        after = np.concatenate([row[1:] for row in rows])
        inside = self.skill_id[at] >= 0
        reward = self.reward if task is None else self.task_rewards[:, task]
        return self.obs[after[inside]], reward[at[inside], None]

    def followed(self, count: int, steps: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """(N, obs), (N, action) and (N,): stored steps and the discounted rewards of `steps` steps from each on.

        Of `count` that are drawn, those behind which the episode goes on for as long.
        """
        starts = self._draw(count, rng)
        place = self._place(starts)
        _, last, _ = self._span(starts, self._episode_begins())
        inside = place + steps <= last
        starts, place = starts[inside], place[inside]
        window = self._at(starts[:, None], place[:, None] + np.arange(steps))  # (N, steps)
        total = self.reward[window] @ (self.gamma ** np.arange(steps)).astype(np.float32)
        return self.obs[starts], self.action[starts], total

    # ---- checkpoints -------------------------------------------------------------------------------------------

    _SMALL = ("skills", "written", "age", "last_skill", "last_skill_id")
    _RECORDS = ("obs", "action", "reward", "task_rewards", "physics", "terminated", "valid", "skill_id", "begins")

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


def _rows(array: npt.NDArray[np.float32], index: Integers) -> Tensor:
    return torch.from_numpy(array[index])
