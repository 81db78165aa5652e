"""The replay against lists of episodes: every sample is one that the lists allow, and all of those come."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from helpers import steady
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_model import GAMMA, GOES_ON, TERMINATES, TRUNCATES, Case, Pair, experience, unpack

from cic.core.errors import UserError
from cic.core.types import Spaces
from cic.learning.replay import Replay

# ---- hand-made -------------------------------------------------------------------------------------------------


def hand_made(terminated_at: int | None, nstep: int = 3) -> Replay:
    """Five steps with rewards 1, 2, 4, 8, 16 and observations 10 … 15; then an episode's first three steps."""
    replay = Replay(Spaces(1, 1), 1, 100, 1, nstep, gamma=0.5)
    for t in range(5):
        end = np.array([terminated_at == t])
        replay.add(rows(10 + t), rows(0.1 * t), rows(0.01 * t), np.array([2.0**t], np.float32), end)
    replay.finish(rows(15), np.array([True]))
    for t in range(3):
        replay.add(rows(20 + t), rows(1), rows(0), np.array([100.0], np.float32), np.array([False]))
    return replay


def rows(value: float) -> np.ndarray:
    return np.array([[value]], np.float32)


@pytest.mark.parametrize(("terminated_at", "last"), [(None, 0.125), (4, 0.0)])
def test_three_step_samples_of_a_hand_made_episode(terminated_at: int | None, last: float) -> None:
    batch = hand_made(terminated_at).sample(300, np.random.default_rng(0))
    found = unpack(batch)
    # (action, reward, discount, next_obs, skill): r_t + r_{t+1}/2 + r_{t+2}/4, and bootstrapping through time limits
    assert {obs: pytest.approx(row) for obs, row in found.items()} == {
        (10.0,): (0.0, 1 + 1 + 1, 0.125, 13, 0.0),
        (11.0,): (0.01, 2 + 2 + 2, 0.125, 14, 0.1),
        (12.0,): (0.02, 4 + 4 + 4, last, 15, 0.2),
    }


def test_one_step_samples_of_a_hand_made_episode() -> None:
    found = unpack(hand_made(4, nstep=1).sample(300, np.random.default_rng(0)))
    assert sorted(obs[0] for obs in found) == [10, 11, 12, 13, 14, 20, 21]
    assert found[(14.0,)] == pytest.approx((0.04, 16, 0.0, 15, 0.4))
    assert found[(13.0,)] == pytest.approx((0.03, 8, 0.5, 14, 0.3))


def test_a_sample_keeps_the_skill_of_its_first_step() -> None:
    pair = Pair(slots=20)
    for t in range(12):
        pair.step([GOES_ON], [t // 2])
    pair.check()


def test_shapes_and_types_are_those_of_a_batch() -> None:
    pair = Pair(copies=2)
    for _ in range(6):
        pair.step([GOES_ON] * 2, [0, 1])
    batch = pair.replay.sample(5, np.random.default_rng(0))
    assert [tuple(tensor.shape) for tensor in batch[:6]] == [(5, 2), (5, 2), (5, 1), (5, 1), (5, 2), (5, 2)]
    assert {tensor.dtype for tensor in batch[:6]} == {torch.float32}
    assert batch.extras == {}


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_too_little_experience_is_an_error_not_an_endless_loop(steps: int) -> None:
    pair = Pair()
    for _ in range(steps):
        pair.step([GOES_ON], [0])
    assert not pair.replay.ready()
    with pytest.raises(UserError, match="no complete sample"):
        pair.replay.sample(4, np.random.default_rng(0))


def test_a_replay_too_small_for_its_returns_is_refused() -> None:
    with pytest.raises(UserError, match="too small"):
        Replay(Spaces(2, 2), 0, capacity=9, num_envs=3, nstep=3)
    Replay(Spaces(2, 2), 0, capacity=12, num_envs=3, nstep=3)


# ---- any experience --------------------------------------------------------------------------------------------


@given(experience())
@settings(steady, max_examples=150)
def test_samples_are_exactly_those_of_the_lists(case: Case) -> None:
    """Short episodes, terminations, time limits, several copies, overflow and changing skills."""
    pair, steps = case
    for index, step in enumerate(steps):
        pair.step(*step)
        if index % 23 == 22:
            pair.check()
    pair.check()
    assert len(pair.replay) == sum(min(len(stream), pair.lists.slots) for stream in pair.lists.streams)


def test_overflow_with_a_new_skill_at_every_step() -> None:
    pair = Pair(copies=2, slots=90)
    rng = np.random.default_rng(0)
    for t in range(500):
        pair.step([int(rng.choice(3, p=[0.9, 0.05, 0.05])) for _ in range(2)], [2 * t, 2 * t + 1])
        if t % 99 == 98:
            pair.check()
    assert len(pair.replay.skills) <= 512, "skills of overwritten records must make room"


@pytest.mark.parametrize(("copies", "slots"), [(1, 63), (1, 64), (1, 65), (2, 32), (2, 64), (1, 128)])
def test_as_many_skills_as_the_table_has_rows(copies: int, slots: int) -> None:
    """The oldest record's skill is the first to be lost if the table is a row too small."""
    pair = Pair(copies, slots)
    for t in range(3 * slots + 5):
        pair.step([GOES_ON] * copies, [copies * t + copy for copy in range(copies)])
        if t >= 3 * slots:
            pair.check()


def test_a_skill_that_lasts_survives_a_copy_that_changes_all_the_time() -> None:
    pair = Pair(copies=2, slots=90)
    for t in range(300):
        pair.step([GOES_ON] * 2, [7, 1000 + t])
    pair.check()


def test_equal_skills_are_stored_once() -> None:
    pair = Pair(slots=1000)
    for t in range(900):
        pair.step([TRUNCATES if t % 100 == 99 else GOES_ON], [t // 50])
    assert len(pair.replay.skills) == 64, "18 skills fit the smallest table"
    pair.check(30_000)


def test_every_start_is_equally_likely() -> None:
    pair = Pair(copies=3, slots=40)
    rng = np.random.default_rng(0)
    for _ in range(70):
        pair.step([int(rng.choice(3, p=[0.8, 0.1, 0.1])) if copy else GOES_ON for copy in range(3)], [0, 1, 2])
    starts = len(pair.lists.transitions())
    draws = 400 * starts
    batch = pair.replay.sample(draws, np.random.default_rng(2))
    counts = np.unique(batch.obs.numpy(), axis=0, return_counts=True)[1]
    assert len(counts) == starts
    chi_square = ((counts - 400) ** 2 / 400).sum()
    assert abs(chi_square - (starts - 1)) < 4 * np.sqrt(2 * (starts - 1))


def test_sampling_repeats_with_the_generator() -> None:
    pair = Pair(copies=2)
    for _ in range(40):
        pair.step([GOES_ON] * 2, [0, 1])
    first = pair.replay.sample(16, np.random.default_rng(5))
    again = pair.replay.sample(16, np.random.default_rng(5))
    assert all(torch.equal(a, b) for a, b in zip(first[:6], again[:6], strict=True))


# ---- views -----------------------------------------------------------------------------------------------------


def pairs_of(pair: Pair, copy: int) -> list[tuple[tuple[float, ...], float]]:
    """(next_obs, reward) of each complete step of a copy, oldest first."""
    stream = pair.lists.streams[copy][-pair.lists.slots :]
    return [
        (after.obs, before.reward) for before, after in itertools.pairwise(stream) if before.episode == after.episode
    ]


@pytest.mark.parametrize("steps", [1, 10, 25, 1000])
@pytest.mark.parametrize("length", [4, 29, 100])
def test_recent_steps_pair_each_reward_with_the_observation_it_led_to(length: int, steps: int) -> None:
    pair = Pair(copies=2, slots=50)
    for t in range(length):
        pair.step([TERMINATES if t % 13 == 12 else GOES_ON, TRUNCATES if t % 9 == 8 else GOES_ON], [0, t])
    next_obs, reward = pair.replay.recent(steps)
    assert reward.shape == (len(next_obs), 1)
    got = [(tuple(o), float(r[0])) for o, r in zip(next_obs, reward, strict=True)]
    for copy in range(2):
        own = [row for row in got if row[0][0] == copy]
        known = pairs_of(pair, copy)
        assert own == known[len(known) - len(own) :], "the newest, in order"
        assert len(own) <= steps
        assert len(own) >= min(steps - 1 - steps // 9, len(known))


def test_recent_steps_can_be_rewarded_by_any_task() -> None:
    replay = Replay(Spaces(1, 1), 0, 12, 1, 1, GAMMA, tasks=2)
    for t in range(20):
        paid = np.array([[10.0 * t, -t]], np.float32)
        replay.add(
            rows(t), np.zeros((1, 0)), rows(0), np.array([t / 8], np.float32), np.array([False]), task_rewards=paid
        )
    for task, factor in ((None, 1 / 8), (0, 10.0), (1, -1.0)):
        next_obs, reward = replay.recent(5, task)
        assert next_obs[:, 0].tolist() == [15, 16, 17, 18, 19]
        assert reward[:, 0].tolist() == [factor * t for t in range(14, 19)]


def test_recent_of_an_empty_replay_is_empty() -> None:
    next_obs, reward = Pair().replay.recent(10)
    assert next_obs.shape == (0, 2)
    assert reward.shape == (0, 1)


@pytest.mark.parametrize("length", [20, 90])
def test_latest_observations_are_the_newest_records(length: int) -> None:
    pair = Pair(copies=2, slots=50)
    for _ in range(length):
        pair.step([GOES_ON] * 2, [0, 1])
    got = {tuple(row) for row in pair.replay.latest(12)}
    assert got == {record.obs for stream in pair.lists.streams for record in stream[-12:]}


def test_latest_observations_cover_the_asked_steps_when_episodes_end() -> None:
    pair = Pair(slots=50)
    for t in range(30):
        pair.step([TRUNCATES if t % 5 == 4 else GOES_ON], [0])
    got = {tuple(row) for row in pair.replay.latest(30)}
    assert got >= {record.obs for record in pair.lists.streams[0] if not record.final}


def test_latest_observations_were_all_seen() -> None:
    pair = Pair(slots=50)
    for _ in range(5):
        pair.step([GOES_ON], [0])
    assert {tuple(row) for row in pair.replay.latest(12)} == {record.obs for record in pair.lists.streams[0]}


# ---- checkpoints and memory ------------------------------------------------------------------------------------


@given(experience(), st.integers(0, 2**31))
@settings(steady, max_examples=60)
def test_a_restored_replay_continues_identically(case: Case, seed: int) -> None:
    pair, steps = case
    rng = np.random.default_rng(seed)
    cut = int(rng.integers(len(steps) + 1))
    for step in steps[:cut]:
        pair.step(*step)
    state = {name: array.copy() for name, array in pair.replay.state().items()}
    original = pair.replay
    restored = Replay(
        Spaces(2, 2),
        pair.skill_dim,
        pair.lists.copies * pair.lists.slots,
        pair.lists.copies,
        pair.lists.nstep,
        GAMMA,
        2,
    )
    restored.restore(state)
    for step in steps[cut:]:
        before = pair.rng.bit_generator.state, pair.clock, list(pair.episode), [list(s) for s in pair.lists.streams]
        pair.step(*step)
        pair.rng.bit_generator.state, pair.clock, pair.episode, pair.lists.streams = before
        pair.replay = restored
        pair.step(*step)
        pair.replay = original
    assert all(np.array_equal(a, restored.state()[name]) for name, a in original.state().items())
    pair.replay = restored
    pair.check()
    if original.ready():
        first = original.sample(8, np.random.default_rng(seed))
        second = restored.sample(8, np.random.default_rng(seed))
        assert all(torch.equal(a, b) for a, b in zip(first[:6], second[:6], strict=True))


@given(experience(), st.integers(1, 5))
@settings(steady, max_examples=60)
def test_a_loaded_replay_samples_with_another_n(case: Case, nstep: int) -> None:
    pair, steps = case
    for step in steps:
        pair.step(*step)
    slots, wrapped = pair.lists.slots, bool((pair.replay.written > pair.lists.slots).any())
    if wrapped and slots <= nstep:
        with pytest.raises(UserError, match="too small"):
            Replay.load(pair.replay.state(), nstep, GAMMA)
        return
    pair.replay, pair.lists.nstep = Replay.load(pair.replay.state(), nstep, GAMMA), nstep
    pair.check()


@given(experience(), st.one_of(st.none(), st.integers(0, 30)))
@settings(steady, max_examples=60)
def test_episodes_are_the_records_between_ends(case: Case, latest: int | None) -> None:
    pair, steps = case
    for step in steps:
        pair.step(*step)
    wanted = []
    for stream in pair.lists.streams:
        alive = stream[-pair.lists.slots :]
        alive = alive if latest is None else alive[max(len(alive) - latest, 0) :]
        for number, (_, group) in enumerate(itertools.groupby(alive, lambda record: record.episode)):
            records = list(group)
            complete = records[-1].final and len(records) > 1 and (number > 0 or len(alive) == len(stream))
            wanted.append((records, complete))
    replay = Replay.load(pair.replay.state())
    found = list(replay.episodes(("a", "b"), partial=True, latest=latest))
    assert [episode.complete for episode in found] == [complete for _, complete in wanted]
    for episode, (records, _) in zip(found, wanted, strict=True):
        taken = records[:-1]
        assert len(episode) == len(taken)
        assert [tuple(row) for row in episode.observation] == [record.obs for record in records]
        assert [tuple(row) for row in episode.action] == [record.action for record in taken]
        assert [float(reward) for reward in episode.reward] == [record.reward for record in taken]
        assert [tuple(row) for row in episode.skill] == [record.skill for record in taken]
        assert episode.terminated == any(record.terminated for record in taken)
        assert {len(rewards) for rewards in episode.task_rewards.values()} == {len(taken)}
    complete = [episode.observation for episode in replay.episodes(latest=latest)]
    assert [path.tolist() for path in complete] == [e.observation.tolist() for e in found if e.complete]


def test_a_state_holds_only_the_filled_part_of_the_ring() -> None:
    pair = Pair()
    for _ in range(10):
        pair.step([GOES_ON], [0])
    assert pair.replay.state()["obs"].shape == (1, 10, 2)


def test_a_million_walker_steps_fit_in_200_megabytes() -> None:
    replay = Replay(Spaces(24, 6), 64, capacity=1_000_000)
    zeros = np.zeros((1, 24), np.float32), np.zeros((1, 6), np.float32), np.zeros(1, np.float32), np.zeros(1, np.bool_)
    obs, action, reward, terminated = zeros
    skills = np.random.default_rng(0).random((20_000, 1, 64), dtype=np.float32)
    for skill in skills:  # as many skills as a million steps have, 50 steps each
        replay.add(obs, skill, action, reward, terminated)
    held = sum(value.nbytes for value in vars(replay).values() if isinstance(value, np.ndarray))
    assert len(replay.skills) >= 20_000
    assert held < 200e6
