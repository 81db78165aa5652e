"""The replay buffer: a ring of records per environment, sampled as n-step transitions.

The stream of one environment is a sequence of records. A record holds an observation and the step that was taken from
it (action, reward, termination, skill). An episode of T steps has T + 1 records; the last one, marked by `episode_end`,
holds only the final observation. A sample starts at any record whose next n records belong to the same episode:

    obs s_t, action a_t, reward Σ_{i<n} γ^i r_{t+i}, discount γ^n (0 if s_{t+n} is terminal), next_obs s_{t+n},
    skill z_t

Samples therefore cross neither the end of an episode nor the write position of the ring, and a truncated episode is
bootstrapped. Episodes shorter than n steps are never sampled. Each distinct skill is stored once. Images are stored as
uint8, and only once if observations are stacks of them.
`cic.learning.replay_extras` computes the extras that objectives request with `Needs`.

Only this module depends on the layout of the arrays in a checkpoint. `Replay.load` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cic.core.errors import UserError
from cic.core.observations import Part
from cic.core.types import Array, Batch, Bools, Needs, Spaces
from cic.learning import replay_extras

Integers = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Arrays = dict[str, npt.NDArray[Any]]
NO_EXTRAS = Needs()


@dataclass(frozen=True)
class Episode:
    """T steps: row t of actions and rewards belongs to the step from observation t to observation t + 1."""

    observation: Array  # (T + 1, obs)
    action: Array  # (T, action)
    reward: Array  # (T,) of the environment
    task_rewards: dict[str, Array]  # task → (T,)
    terminated: bool  # False if the episode was truncated
    skill: Array  # (T, dim); (T, 0) for methods without skills
    physics: Doubles | None = None  # (T + 1, state): positions, velocities, activations
    complete: bool = field(default=True, kw_only=True)  # False if its start was overwritten or its end is yet to come

    def __len__(self) -> int:
        return len(self.action)


class Replay:
    """A ring of `capacity` records, divided evenly between `num_envs` environments.

    Args:
        spaces: Sizes of observations and actions.
        skill_dim: Dimensions of a skill.
        capacity: Records of all environments together.
        num_envs: Parallel environments.
        nstep: n of the n-step transitions.
        gamma: Discount.
        tasks: Number of tasks whose rewards are stored with each step.
        physics: Size of the simulator state that is stored with each observation; 0 stores none.
    """

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
                f"a replay of {capacity} steps is too small for {num_envs} environments and {nstep}-step returns: "
                "make it larger"
            )
        self.num_envs, self.nstep, self.gamma = num_envs, nstep, gamma
        records = num_envs * self.slots
        self.spaces = spaces
        self._most_frames = max((part.frames for part in spaces.images), default=1)
        self.obs = np.zeros((records, spaces.numbers), np.float32)
        self.frames = np.zeros((records, spaces.frame_bytes), np.uint8)  # the newest image of each stack
        self.history = np.zeros(records, np.uint8)  # earlier images of the episode that are held, up to a stack
        self.action = np.zeros((records, spaces.action), np.float32)
        self.reward = np.zeros(records, np.float32)
        self.task_rewards = np.zeros((records, tasks), np.float32)
        self.physics = np.zeros((records, physics), np.float64)
        self.terminated = np.zeros(records, np.bool_)
        self.episode_end = np.zeros(records, np.bool_)  # the record holds the final observation of an episode
        self.valid = np.zeros(records, np.bool_)  # a sample may start here
        self.skill_started = np.zeros(records, np.bool_)  # the skill was drawn at this record
        self.skill_id = np.zeros(records, np.int64)
        self.skills = np.zeros((64, skill_dim), np.float32)  # ring of distinct skills; row = id % len
        self.next_skill_id = 0
        self.written = np.zeros(num_envs, np.int64)  # records ever written, per environment
        self.age = np.zeros(num_envs, np.int64)  # records of the current episode, per environment
        self.last_skill = np.full((num_envs, skill_dim), np.nan, np.float32)
        self.last_skill_id = np.full(num_envs, -1, np.int64)
        self._base = np.arange(num_envs) * self.slots
        self._discounts = (gamma ** np.arange(nstep)).astype(np.float32)
        self._offsets = np.arange(nstep + 1)

    @classmethod
    def load(cls, arrays: Mapping[str, npt.NDArray[Any]], nstep: int = 1, gamma: float = 0.99) -> Replay:
        """Create a replay from the arrays that `state` returned, for reading and sampling with this n and γ.

        Sizes come from the arrays. A run that resumes uses `restore` instead, which keeps the capacity.
        """
        num_envs, filled, obs = arrays["obs"].shape
        action, tasks, physics = (arrays[name].shape[2] for name in ("action", "task_rewards", "physics"))
        wrapped = bool((arrays["written"] > filled).any())
        slots = filled if wrapped else max(filled, nstep + 1)
        skill_dim = arrays["skills"].shape[1]
        replay = cls(Spaces(obs, action), skill_dim, num_envs * slots, num_envs, nstep, gamma, tasks, physics)
        replay.restore(arrays)
        replay._find_valid_starts()
        return replay

    @classmethod
    def from_steps(
        cls, obs: Array, action: Array, terminated: Bools, episode_end: Bools, skill_dim: int, nstep: int, gamma: float
    ) -> Replay:
        """Create a replay from records in order, with zero rewards and skills.

        `episode_end` marks the observations after which no step is known.
        """
        spaces = Spaces(obs.shape[1], action.shape[1])
        replay = cls(spaces, skill_dim, max(len(obs), nstep + 1), nstep=nstep, gamma=gamma)
        values = {"obs": obs, "action": action, "terminated": terminated, "episode_end": episode_end}
        for name, rows in values.items():
            getattr(replay, name)[: len(obs)] = rows
        replay.written[:] = len(obs)
        replay._find_valid_starts()
        return replay

    def _find_valid_starts(self) -> None:
        self.valid[:] = False
        for env in range(self.num_envs):
            records = self.records_of(env)
            final = self.episode_end[records]
            ends: Integers = np.cumsum(final) - final  # before each record
            inside: Bools = ends[self.nstep :] == ends[: -self.nstep]
            self.valid[records[: len(inside)][inside]] = True

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
        skill_started: Bools | None = None,
        task_rewards: Array | None = None,
        physics: Doubles | None = None,
    ) -> None:
        """Store one step of every environment.

        `skill_started` marks the environments whose skill was drawn at this observation, also if the same skill was
        drawn again. A skill that differs from the one before has always started.
        """
        first = self.age == 0
        at = self._advance(np.arange(self.num_envs), obs)
        self.action[at] = action
        self.reward[at] = reward
        self.terminated[at] = terminated
        self.episode_end[at] = False
        if task_rewards is not None:
            self.task_rewards[at] = task_rewards
        if physics is not None:
            self.physics[at] = physics
        changed = (skill != self.last_skill).any(axis=1) | (self.last_skill_id < 0)
        self.skill_started[at] = first | changed | (False if skill_started is None else skill_started)
        self.skill_id[at] = self._intern(skill, np.flatnonzero(changed))

    def finish(self, obs: Array, done: Bools, physics: Doubles | None = None) -> None:
        """Store the final observations of the environments that are `done`; their next record starts an episode."""
        envs = np.flatnonzero(done)
        at = self._advance(envs, obs[envs])
        if physics is not None:
            self.physics[at] = physics[envs]
        self.episode_end[at] = True
        self.skill_id[at] = self.last_skill_id[envs]
        self.skill_started[at] = False
        self.age[envs] = 0

    def _advance(self, envs: Integers, obs: Array) -> Integers:
        position = self.written[envs] % self.slots
        at = self._base[envs] + position
        self._write(envs, at, obs)
        self.valid[at] = False
        complete = self.age[envs] >= self.nstep
        start = self._base[envs] + (position - self.nstep) % self.slots
        self.valid[start[complete]] = True
        self.written[envs] += 1
        self.age[envs] += 1
        return at

    def _write(self, envs: Integers, at: Integers, obs: Array) -> None:
        if not self.spaces.images:
            self.obs[at] = obs
            return
        self.obs[at] = obs[:, ~self._pixels]
        self.history[at] = np.minimum(self.age[envs], self._most_frames - 1)
        for part, column in self._columns():
            self._check_stack(envs, at, obs, part, column)
            self.frames[at, column : column + part.frame_size] = obs[:, part.stop - part.frame_size : part.stop]
        for step in range(1, self._most_frames):  # the oldest records lose the image that is overwritten
            later = self._base[envs] + (self.written[envs] + step) % self.slots
            cut = later[(self.written[envs] >= self.slots) & (self.history[later] >= step)]
            self.history[cut], self.valid[cut] = step - 1, False

    def _check_stack(self, envs: Integers, at: Integers, obs: Array, part: Part, column: int) -> None:
        """Stacks must overlap: an image is stored once. The first stack of an episode repeats the first image."""
        if part.frames == 1:
            return
        before = obs[:, part.stop - 2 * part.frame_size : part.stop - part.frame_size]
        newest = obs[:, part.stop - part.frame_size : part.stop]
        previous = self._base[envs] + (at - self._base[envs] - 1) % self.slots
        stored = self.frames[previous, column : column + part.frame_size]
        if not np.array_equal(before, np.where(self.age[envs, None] == 0, newest, stored)):
            raise UserError(
                f"the {part.frames} images of {part.name or 'the observation'} are not those of the last steps: use "
                'gymnasium.wrappers.FrameStackObservation(env, frames, padding_type="reset")'
            )

    def _columns(self) -> Iterator[tuple[Part, int]]:
        """The images and the first column of each in `frames`."""
        column = 0
        for part in self.spaces.images:
            yield part, column
            column += part.frame_size

    @cached_property
    def _pixels(self) -> Bools:
        """Which entries of a flat observation are pixels."""
        mask = np.zeros(self.spaces.obs, np.bool_)
        for part in self.spaces.images:
            mask[part.start : part.stop] = True
        return mask

    def observations(self, records: Integers) -> npt.NDArray[Any]:
        """The observations (…, obs) of records: float32, or uint8 if they consist of images alone."""
        if not self.spaces.images:
            return self.obs[records]
        only_images = self.spaces.numbers == 0
        found = np.empty((*records.shape, self.spaces.obs), np.uint8 if only_images else np.float32)
        if not only_images:
            found[..., ~self._pixels] = self.obs[records]
        env, position = np.divmod(records, self.slots)
        for part, column in self._columns():
            for index in range(part.frames):
                back = np.minimum(part.frames - 1 - index, self.history[records])
                at = env * self.slots + (position - back) % self.slots
                first = part.start + index * part.frame_size
                found[..., first : first + part.frame_size] = self.frames[at, column : column + part.frame_size]
        return found

    def _intern(self, skill: Array, changed: Integers) -> Integers:
        for env in changed:
            self._grow_skills()
            self.skills[self.next_skill_id % len(self.skills)] = skill[env]
            self.last_skill[env] = skill[env]
            self.last_skill_id[env] = self.next_skill_id
            self.next_skill_id += 1
        return self.last_skill_id

    def _grow_skills(self) -> None:
        """Double the ring of skills if a record that is held still uses the row that is written next."""
        envs = np.flatnonzero(self.written > 0)
        oldest = int(self.skill_id[self._base[envs] + self._oldest(envs)].min(initial=self.next_skill_id))
        size = len(self.skills)
        if self.next_skill_id - oldest < size:
            return
        ids = np.arange(oldest, self.next_skill_id)
        grown = np.zeros((2 * size, self.skills.shape[1]), np.float32)
        grown[ids % (2 * size)] = self.skills[ids % size]
        self.skills = grown

    # ---- sampling ----------------------------------------------------------------------------------------------

    def sample(self, batch: int, rng: np.random.Generator, needs: Needs = NO_EXTRAS) -> Batch:
        """Sample transitions uniformly, with the extras that an objective needs."""
        starts = self._draw(batch, rng)
        return self.gather(starts)._replace(extras=replay_extras.extras(self, starts, rng, needs))

    def ready(self) -> bool:
        """Whether there is a transition to sample."""
        return bool(self.valid.any())

    def _draw(self, batch: int, rng: np.random.Generator) -> Integers:
        if not self.ready():
            raise UserError("the replay holds no complete sample yet: collect more steps before updating")
        starts = self.draw_records(batch, rng)
        bad = np.flatnonzero(~self.valid[starts])
        while len(bad):  # of each episode, about n + 1 records are not valid
            starts[bad] = self.draw_records(len(bad), rng)
            bad = bad[~self.valid[starts[bad]]]
        return starts

    def draw_records(self, count: int, rng: np.random.Generator) -> Integers:
        """Draw records uniformly from all that are held."""
        filled = np.minimum(self.written, self.slots)
        ends = np.cumsum(filled)
        flat = rng.integers(ends[-1], size=count)
        env = np.searchsorted(ends, flat, side="right")
        records: Integers = flat - (ends - filled)[env] + self._base[env]
        return records

    def gather(self, starts: Integers) -> Batch:
        """Return the n-step transitions that start at these records."""
        env, position = np.divmod(starts, self.slots)
        window = (position[:, None] + self._offsets) % self.slots + (env * self.slots)[:, None]  # (B, n + 1)
        rewards = (self.reward[window[:, :-1]] * self._discounts).sum(axis=1, keepdims=True)
        ended = self.terminated[window[:, -2]]
        return Batch(
            obs=torch.from_numpy(self.observations(starts)),
            action=_rows(self.action, starts),
            reward=torch.from_numpy(rewards),
            discount=torch.from_numpy(np.where(ended, 0.0, self.gamma**self.nstep).astype(np.float32)[:, None]),
            next_obs=torch.from_numpy(self.observations(window[:, -1])),
            skill=_rows(self.skills, self.skill_id[starts] % len(self.skills)),
        )

    # ---- records in the order in which they were written -------------------------------------------------------

    def records_of(self, env: int, latest: int | None = None) -> Integers:
        """The records that one environment holds, or the latest of them, oldest first."""
        held = min(int(self.written[env]), self.slots)
        first = 0 if latest is None else max(held - latest, 0)
        return self.at(np.array([env * self.slots]), np.arange(first, held))

    def place(self, records: Integers) -> Integers:
        """How many older records the same environment holds."""
        env, position = np.divmod(records, self.slots)
        return (position - self._oldest(env)) % self.slots

    def at(self, records: Integers, places: Integers) -> Integers:
        """The records at these places, in the environments to which `records` belong."""
        env = records // self.slots
        return env * self.slots + (self._oldest(env) + places) % self.slots

    def _oldest(self, envs: Integers) -> Integers:
        return np.where(self.written[envs] > self.slots, self.written[envs] % self.slots, 0)

    # ---- reading -----------------------------------------------------------------------------------------------

    def episodes(
        self, tasks: Sequence[str] = (), *, partial: bool = False, latest: int | None = None
    ) -> Iterator[Episode]:
        """Yield the episodes, environment after environment, oldest first.

        Args:
            tasks: Names of the tasks whose rewards are stored, in their order.
            partial: Also yield episodes whose start was overwritten or that have not ended. One of a single
                observation has no steps.
            latest: Read only this many latest records of each environment.
        """
        for env in range(self.num_envs):
            records = self.records_of(env, latest)
            whole = len(records) == int(self.written[env])
            bounds = np.flatnonzero(self.episode_end[records]) + 1
            for number, part in enumerate(np.split(records, bounds)):
                complete = len(part) > 1 and bool(self.episode_end[part[-1]]) and (number > 0 or whole)
                if complete or (partial and len(part)):
                    yield self._episode(part, tasks, complete)

    def _episode(self, records: Integers, tasks: Sequence[str], complete: bool) -> Episode:
        steps = records[:-1]
        return Episode(
            observation=self.observations(records),
            action=self.action[steps],
            reward=self.reward[steps],
            task_rewards={task: self.task_rewards[steps, index] for index, task in enumerate(tasks)},
            terminated=bool(self.terminated[steps[-1:]].any()),
            skill=self.skills[self.skill_id[steps] % len(self.skills)],
            physics=self.physics[records] if self.physics.shape[1] else None,
            complete=complete,
        )

    def recent(self, steps: int, task: int | None = None) -> tuple[Array, Array]:
        """Return (next_obs, reward) of up to `steps` latest steps of each environment, oldest first.

        The reward is the environment's own, or that of the task with this index.
        """
        at, after = self._recent_records(steps)
        reward = self.reward if task is None else self.task_rewards[:, task]
        return self.observations(after), reward[at, None]

    def recent_steps(self, steps: int) -> tuple[Array, Array, Array, Array]:
        """Return (obs, action, next_obs, reward) of the same steps as `recent`, with the environment's own reward."""
        at, after = self._recent_records(steps)
        return self.observations(at), self.action[at], self.observations(after), self.reward[at, None]

    def _recent_records(self, steps: int) -> tuple[Integers, Integers]:
        """The records of up to `steps` latest steps of each environment, and of their next observations."""
        rows = [self.records_of(env, steps + 1) for env in range(self.num_envs)]
        at = np.concatenate([row[:-1] for row in rows])
        after = np.concatenate([row[1:] for row in rows])
        inside = ~self.episode_end[at]
        return at[inside], after[inside]

    def latest(self, steps: int) -> Array:
        """Return the observations of each environment's latest `steps` steps, with final observations."""
        rows = []
        for env in range(self.num_envs):
            records = self.records_of(env, 2 * steps)  # an episode has one record more than steps
            since = np.cumsum(~self.episode_end[records[::-1]])[::-1]  # steps from here to the newest
            rows.append(records[since <= steps])
        return self.observations(np.concatenate(rows))

    def skill_paths(self) -> Iterator[tuple[Array, Array]]:
        """Yield each skill (dim,) that is over and the observations (T + 1, obs) of its path, the latest first."""
        found = []
        for env in np.flatnonzero(self.written > 0):
            records = self.records_of(int(env))
            starts = records[self.skill_started[records]]
            first, last, over = replay_extras.skill_span(self, starts)
            found += [(len(records) - last[i], records[first[i] : last[i] + 1]) for i in np.flatnonzero(over)]
        for _, path in sorted(found, key=lambda one: one[0]):
            yield self.skills[self.skill_id[path[0]] % len(self.skills)], self.observations(path)

    # ---- checkpoints -------------------------------------------------------------------------------------------

    _SMALL = ("skills", "written", "age", "last_skill", "last_skill_id")
    _RECORDS = (
        "obs",
        "action",
        "reward",
        "task_rewards",
        "physics",
        "terminated",
        "episode_end",
        "valid",
        "skill_started",
        "skill_id",
    )

    @property
    def _record_names(self) -> tuple[str, ...]:
        return (*self._RECORDS, "frames", "history") if self.spaces.images else self._RECORDS

    def state(self) -> Arrays:
        """Return everything as arrays, of the ring only the filled part: (num_envs, filled, …)."""
        filled = int(min(self.written.max(initial=0), self.slots))
        state = {name: getattr(self, name) for name in self._SMALL}
        for name in self._record_names:
            full = getattr(self, name)
            state[name] = full.reshape(self.num_envs, self.slots, *full.shape[1:])[:, :filled]
        return state | {"next_skill_id": np.array([self.next_skill_id])}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore what `state` returned, in a replay of the same sizes."""
        self.skills = np.array(state["skills"])
        for name in self._SMALL[1:]:
            getattr(self, name)[...] = state[name]
        for name in self._record_names:
            full = getattr(self, name)
            filled = state[name].shape[1]
            full.reshape(self.num_envs, self.slots, *full.shape[1:])[:, :filled] = state[name]
        self.next_skill_id = int(state["next_skill_id"][0])


def _rows(array: npt.NDArray[np.float32], index: Integers) -> Tensor:
    return torch.from_numpy(array[index])
