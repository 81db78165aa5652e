"""What objectives may ask of the replay, against lists of episodes and any experience."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from helpers import steady
from hypothesis import given, settings
from replay_model import GOES_ON, TERMINATES, TRUNCATES, Case, Pair, Record, experience

from cic.core.types import Batch, Needs

Obs = tuple[float, ...]


def alive(pair: Pair) -> Iterator[list[Record]]:
    for stream in pair.lists.streams:
        yield stream[-pair.lists.slots :]


def found_at(pair: Pair) -> dict[Obs, tuple[list[Record], int]]:
    """Each held observation's stream and its place there."""
    return {record.obs: (stream, place) for stream in alive(pair) for place, record in enumerate(stream)}


def skill_path(stream: list[Record], start: int) -> tuple[list[Obs], bool]:
    """The observations of the whole path of a start's skill, and whether the path is over."""
    first = start
    while first > 0 and not stream[first].begins:
        first -= 1
    path = [record.obs for record in stream[first : start + 1]]
    for record in stream[start + 1 :]:
        path.append(record.obs)
        if record.final or record.begins:  # the episode ends here, or another skill takes over
            return path, True
    return path, False


def rest_of_episode(stream: list[Record], start: int) -> list[Obs]:
    """What comes behind a start in its episode, as far as it is known."""
    return [record.obs for record in stream[start + 1 :] if record.episode == stream[start].episode]


def rows(batch: Batch, name: str) -> list[Obs]:
    return [tuple(row) for row in batch.extras[name].numpy().tolist()]


def check_skills(pair: Pair, points: int) -> None:
    needs = Needs(skill_start=True, path=points)
    batch, places = pair.replay.sample(400, np.random.default_rng(1), needs), found_at(pair)
    assert set(batch.extras) == {"first_obs", "skill_end", "path"}
    assert batch.extras["path"].shape == (400, points, 2)
    assert batch.extras["skill_end"].shape == (400, 1)
    found = zip(
        batch.obs.tolist(), rows(batch, "first_obs"), rows(batch, "skill_end"), rows(batch, "path"), strict=True
    )
    for obs, first, (over,), sampled in found:
        stream, start = places[tuple(obs)]
        path, ended = skill_path(stream, start)
        assert first == path[0]
        # Over at `next_obs`: no more than n observations of the path lie behind the start.
        assert over == float(ended and len(path) - 1 - path.index(tuple(obs)) <= pair.lists.nstep)
        share = np.linspace(0, 1, points)
        assert [tuple(point) for point in sampled] == [path[round(s * (len(path) - 1))] for s in share]


def check_goals(pair: Pair) -> None:
    batch, places = pair.replay.sample(400, np.random.default_rng(1), Needs(goals=0.3)), found_at(pair)
    assert set(batch.extras) == {"goal", "random_goal"}
    for obs, goal in zip(batch.obs.tolist(), rows(batch, "goal"), strict=True):
        assert goal in rest_of_episode(*places[tuple(obs)])
    assert set(rows(batch, "random_goal")) <= set(places)


@given(experience())
@settings(steady, max_examples=120)
def test_extras_are_those_of_the_lists(case: Case) -> None:
    """Several copies, rings overwritten, episodes that end, skills redrawn to the same vector, unfinished skills."""
    pair, steps = case
    for index, step in enumerate(steps):
        pair.step(*step)
        if (index % 29 == 28 or index == len(steps) - 1) and pair.replay.ready():
            check_skills(pair, points=1 + index % 5)
            check_goals(pair)


def test_a_plain_batch_is_the_same_with_and_without_extras() -> None:
    pair = Pair(copies=2)
    for t in range(50):
        pair.step([GOES_ON, TRUNCATES if t % 9 == 8 else GOES_ON], [t // 7, t // 5])
    plain = pair.replay.sample(64, np.random.default_rng(3))
    more = pair.replay.sample(64, np.random.default_rng(3), Needs(skill_start=True, path=3, goals=0.5))
    assert all((one == other).all() for one, other in zip(plain[:6], more[:6], strict=True))


def test_a_hand_made_path() -> None:
    """Two skills in an episode of 6 steps that terminates: 0 1 2 | 3 4 5, and 6 the final observation."""
    pair = Pair(nstep=1)
    for t in range(6):
        pair.step([TERMINATES if t == 5 else GOES_ON], [t // 3])
    batch = pair.replay.sample(200, np.random.default_rng(0), Needs(skill_start=True, path=3))
    clock = {round(float(obs[1]), 1): row for row, obs in enumerate(batch.obs)}  # counts from 1; the last is 6.5
    assert sorted(clock) == [1, 2, 3, 4, 5, 6]
    first, over, path = batch.extras["first_obs"], batch.extras["skill_end"], batch.extras["path"]
    assert [float(first[clock[t], 1]) for t in (1, 2, 3, 4, 5, 6)] == [1, 1, 1, 4, 4, 4]
    assert [float(over[clock[t], 0]) for t in (1, 2, 3, 4, 5, 6)] == [0, 0, 1, 0, 0, 1]
    assert path[clock[2], :, 1].tolist() == [1, 3, 4], "from its first to where the other takes over, 1.5 rounded to 2"
    assert path[clock[4], :, 1].tolist() == [4, 6, 6.5]


def test_goals_lie_a_geometric_number_of_steps_ahead() -> None:
    pair, chance, draws = Pair(slots=40), 0.3, 60_000
    for _ in range(30):
        pair.step([GOES_ON], [0])
    batch = pair.replay.sample(draws, np.random.default_rng(0), Needs(goals=chance))
    from_first = batch.obs[:, 1] == 20  # ten records lie behind it
    ahead = (batch.extras["goal"][from_first, 1] - 20).long().numpy()
    expected = [(1 - chance) ** (k - 1) * chance for k in range(1, 10)]
    expected.append(1 - sum(expected))  # whatever would lie further on is the episode's last
    counts = np.bincount(ahead, minlength=11)[1:]
    assert len(counts) == 10
    spread = np.sqrt(len(ahead) * np.array(expected) * (1 - np.array(expected)))
    assert (abs(counts - len(ahead) * np.array(expected)) < 5 * spread).all()


def test_any_observation_may_be_the_random_goal_and_all_alike() -> None:
    pair = Pair(copies=2, slots=20)
    for t in range(30):
        pair.step([GOES_ON, TRUNCATES if t % 4 == 3 else GOES_ON], [0, 0])
    batch = pair.replay.sample(40_000, np.random.default_rng(0), Needs(goals=0.5))
    held, counts = np.unique(batch.extras["random_goal"].numpy(), axis=0, return_counts=True)
    assert {tuple(row) for row in held.tolist()} == set(found_at(pair))
    assert abs(counts - 1_000).max() < 5 * np.sqrt(1_000)
