"""A replay's model: lists of episodes that it must be equal to, and experience for both."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from hypothesis import strategies as st

from cic.core.types import Batch, Spaces
from cic.learning.replay import Replay

GAMMA = 0.9
GOES_ON, TERMINATES, TRUNCATES = 0, 1, 2


@dataclass
class Record:
    episode: int
    obs: tuple[float, ...]
    action: tuple[float, ...] = ()
    reward: float = 0.0
    terminated: bool = False
    skill: tuple[float, ...] = ()
    begins: bool = False
    final: bool = False


@dataclass
class Lists:
    """What a replay must be equal to: per copy a list of records, of which the newest `slots` are alive."""

    copies: int
    slots: int
    nstep: int
    streams: list[list[Record]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.streams = [[] for _ in range(self.copies)]

    def transitions(self) -> dict[tuple[float, ...], tuple[float, ...]]:
        """obs → (action, reward, discount, next_obs, skill) of every start."""
        result = {}
        for stream in self.streams:
            alive = stream[-self.slots :]
            for start in range(len(alive) - self.nstep):
                window = alive[start : start + self.nstep + 1]
                if len({record.episode for record in window}) == 1:
                    reward = sum(GAMMA**i * record.reward for i, record in enumerate(window[:-1]))
                    discount = 0.0 if window[-2].terminated else GAMMA**self.nstep
                    first = window[0]
                    result[first.obs] = (*first.action, reward, discount, *window[-1].obs, *first.skill)
        return result


class Pair:
    """A replay and its model, fed the same steps. Observations are (copy, clock), so each is unique."""

    def __init__(self, copies: int = 1, slots: int = 30, nstep: int = 3, skill_dim: int = 2, spare: int = 0) -> None:
        self.skill_dim = skill_dim
        self.replay = Replay(Spaces(2, 2), skill_dim, copies * slots + spare, copies, nstep, GAMMA, tasks=2)
        self.lists = Lists(copies, slots, nstep)
        self.clock, self.episode = 0, list(range(copies))
        self.rng = np.random.default_rng(0)

    def step(self, ends: list[int], skills: list[int], redrawn: list[bool] | None = None) -> None:
        copies = self.lists.copies
        self.clock += 1
        obs = np.array([[copy, self.clock] for copy in range(copies)], np.float32)
        after = obs + np.array([0, 0.5], np.float32)
        action = self.rng.uniform(-1, 1, (copies, 2)).astype(np.float32)
        reward = self.rng.standard_normal(copies).astype(np.float32)
        skill = np.array([[number, -number] for number in skills], np.float32)[:, : self.skill_dim]
        terminated = np.array([end == TERMINATES for end in ends])
        done = np.array([end != GOES_ON for end in ends])
        begins = None if redrawn is None else np.array(redrawn)
        task_rewards = self.rng.standard_normal((copies, 2)).astype(np.float32)
        self.replay.add(obs, skill, action, reward, terminated, skill_started=begins, task_rewards=task_rewards)
        if done.any():
            self.replay.finish(after, done)
        for copy, stream in enumerate(self.lists.streams):
            before = [record.skill for record in stream if not record.final][-1:]
            first = not stream or stream[-1].final
            again = redrawn is not None and redrawn[copy]
            stream.append(
                Record(
                    self.episode[copy],
                    tuple(obs[copy]),
                    tuple(action[copy]),
                    float(reward[copy]),
                    bool(terminated[copy]),
                    tuple(skill[copy]),
                    first or again or before != [tuple(skill[copy])],
                )
            )
            if done[copy]:
                stream.append(Record(self.episode[copy], tuple(after[copy]), final=True))
                self.episode[copy] += copies

    def check(self, draws: int = 3000) -> None:
        """Every sample is allowed, and every allowed sample is drawn."""
        expected = self.lists.transitions()
        assert self.replay.ready() == bool(expected)
        if not expected:
            return
        seen = unpack(self.replay.sample(draws, np.random.default_rng(1)))
        assert set(seen) == set(expected)
        for obs, transition in seen.items():
            np.testing.assert_allclose(transition, expected[obs], rtol=1e-5, atol=1e-6)


def unpack(batch: Batch) -> dict[tuple[float, ...], tuple[float, ...]]:
    rows = torch.cat([batch.action, batch.reward, batch.discount, batch.next_obs, batch.skill], dim=1).numpy()
    result: dict[tuple[float, ...], tuple[float, ...]] = {}
    for obs, row in zip(batch.obs.numpy(), rows, strict=True):
        key = tuple(obs)
        assert key not in result or result[key] == tuple(row), "one start, two transitions"
        result[key] = tuple(row)
    return result


Case = tuple[Pair, list[tuple[list[int], list[int], list[bool]]]]


@st.composite
def experience(draw: st.DrawFn) -> Case:
    copies, nstep = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    slots = draw(st.integers(nstep + 1, 24))
    pair = Pair(
        copies, slots, nstep, skill_dim=draw(st.sampled_from([0, 1, 2])), spare=draw(st.integers(0, copies - 1))
    )
    end = st.sampled_from([GOES_ON] * draw(st.integers(1, 8)) + [TERMINATES, TRUNCATES])
    skill = st.integers(0, draw(st.integers(0, 30)))  # few values: skills come back; many: they change all the time
    redrawn = st.sampled_from([False] * draw(st.integers(1, 8)) + [True])  # to any vector, also to the same
    step = st.tuples(*(st.lists(one, min_size=copies, max_size=copies) for one in (end, skill, redrawn)))
    return pair, draw(st.lists(step, min_size=1, max_size=70))
