"""The skills that the environments follow in pre-training."""

from __future__ import annotations

import numpy as np

from cic.learning.objectives import SkillSpace
from cic.training.skill_schedule import SkillSchedule


def started(space: SkillSpace, num_envs: int) -> SkillSchedule:
    schedule = SkillSchedule(num_envs, space.dim, np.random.default_rng(0))
    schedule.start_random(space)
    return schedule


def test_skills_are_redrawn_after_their_time_and_at_each_reset() -> None:
    space = SkillSpace("box", 3, every=5)
    schedule = started(space, 2)
    seen = [schedule.current.copy()]
    for step in range(1, 21):
        schedule.advance(np.array([step == 7, False]), space)
        seen.append(schedule.current.copy())
    changed = [[step for step in range(1, 21) if (seen[step][env] != seen[step - 1][env]).any()] for env in (0, 1)]
    assert changed == [[5, 7, 12, 17], [5, 10, 15, 20]]


def test_skills_for_whole_episodes_change_only_at_resets() -> None:
    space = SkillSpace("onehot", 50, every=None)
    schedule = started(space, 1)
    first = schedule.current.copy()
    for _ in range(300):
        schedule.advance(np.array([False]), space)
    assert (schedule.current == first).all()
    schedule.advance(np.array([True]), space)
    assert (schedule.current != first).any()


def test_skills_given_out_are_not_changed_later() -> None:
    """The loop stores the skill it acted with after the next one may have been drawn."""
    space = SkillSpace("box", 3, every=1)
    schedule = started(space, 2)
    given_out = schedule.current
    kept = given_out.copy()
    schedule.advance(np.array([False, True]), space)
    assert (given_out == kept).all()


def test_held_skills_stay_until_random_ones_are_asked_for() -> None:
    space = SkillSpace("box", 3, every=1)
    schedule = started(space, 2)
    schedule.hold(np.full(3, 0.25, np.float32))
    schedule.advance(np.array([True, True]), space)
    schedule.redraw(space)
    assert (schedule.current == 0.25).all()
    assert not schedule.started.any()
    schedule.start_random(space)
    assert (schedule.current != 0.25).all()
    assert schedule.started.all()
