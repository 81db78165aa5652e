"""The extras of a batch that objectives request with `Needs`: where a skill started, its path, goals.

Places count from the oldest record that an environment still holds; overwritten records are not considered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cic.core.types import Bools, Needs

if TYPE_CHECKING:
    from cic.learning.replay import Replay

Integers = npt.NDArray[np.int64]


def extras(replay: Replay, starts: Integers, rng: np.random.Generator, needs: Needs) -> dict[str, Tensor]:
    """Compute the extras of the transitions that start at these records."""
    found: dict[str, Tensor] = {}
    if needs.skill_start or needs.path:
        first, last, over = skill_span(replay, starts)
        if needs.skill_start:
            found["first_obs"] = _observations(replay, replay.at(starts, first))
            ends = over & (last <= replay.place(starts) + replay.nstep)
            found["skill_end"] = torch.from_numpy(ends.astype(np.float32)[:, None])
        if needs.path:
            share = np.linspace(0, 1, needs.path)
            places = first[:, None] + np.rint(share * (last - first)[:, None]).astype(np.int64)  # (B, path)
            found["path"] = _observations(replay, replay.at(starts[:, None], places))
    if needs.goals:
        _, last, _ = _span(replay, starts, _episode_starts(replay))
        ahead = replay.place(starts) + rng.geometric(needs.goals, len(starts))
        found["goal"] = _observations(replay, replay.at(starts, np.minimum(ahead, last)))
        found["random_goal"] = _observations(replay, replay.draw_records(len(starts), rng))
    return found


def skill_span(replay: Replay, starts: Integers) -> tuple[Integers, Integers, Bools]:
    """Return the places of the first and last observation of each start's skill, and whether the skill is over.

    If another skill follows in the same episode, its first observation is the last one of this skill.
    """
    first, last, followed = _span(replay, starts, replay.skill_started)
    held = np.minimum(replay.written[starts // replay.slots], replay.slots)
    following = replay.at(starts, np.minimum(last + 1, held - 1))
    in_episode = followed & ~_episode_starts(replay)[following]
    ended = replay.episode_end[replay.at(starts, last)]
    return first, last + in_episode, followed | ended


def _span(replay: Replay, starts: Integers, begins: Bools) -> tuple[Integers, Integers, Bools]:
    """Return the places of the first and last record of each start's segment, and whether another segment follows.

    `begins` marks the first record of each segment.
    """
    first, last = np.zeros_like(starts), np.zeros_like(starts)
    followed = np.zeros(len(starts), np.bool_)
    places, envs = replay.place(starts), starts // replay.slots
    for env in np.unique(envs):
        mine = envs == env
        records = replay.records_of(int(env))
        edges = np.flatnonzero(begins[records][1:]) + 1
        segment = np.searchsorted(edges, places[mine], side="right")
        bounds = np.concatenate([[0], edges, [len(records)]])
        first[mine], last[mine], followed[mine] = bounds[segment], bounds[segment + 1] - 1, segment < len(edges)
    return first, last, followed


def _episode_starts(replay: Replay) -> Bools:
    """Per record: whether an episode starts here, that is, after a final observation."""
    ends = replay.episode_end.reshape(replay.num_envs, replay.slots)
    return np.roll(ends, 1, axis=1).ravel()


def _observations(replay: Replay, records: Integers) -> Tensor:
    return torch.from_numpy(replay.observations(records))
