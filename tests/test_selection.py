"""Skills drawn in pre-training."""

from __future__ import annotations

import numpy as np

from cic.learning.objectives import SkillSpace
from cic.training.selection import RandomSkills


def test_skills_are_drawn_anew_after_their_time_and_at_each_reset() -> None:
    skills = RandomSkills(SkillSpace("box", 3, every=5), 2, np.random.default_rng(0))
    seen = [skills.current.copy()]
    for step in range(1, 21):
        skills.advance(np.array([step == 7, False]), skills.space.every)
        seen.append(skills.current.copy())
    changed = [[step for step in range(1, 21) if (seen[step][copy] != seen[step - 1][copy]).any()] for copy in (0, 1)]
    assert changed == [[5, 7, 12, 17], [5, 10, 15, 20]]


def test_skills_for_whole_episodes_change_only_at_resets() -> None:
    skills = RandomSkills(SkillSpace("onehot", 50, every=None), 1, np.random.default_rng(0))
    first = skills.current.copy()
    for _ in range(300):
        skills.advance(np.array([False]), skills.space.every)
    assert (skills.current == first).all()
    skills.advance(np.array([True]), skills.space.every)
    assert (skills.current != first).any()


def test_skills_given_out_are_not_changed_later() -> None:
    """The loop stores the skill it acted with after the next one may have been drawn."""
    skills = RandomSkills(SkillSpace("box", 3, every=1), 2, np.random.default_rng(0))
    given_out = skills.current
    kept = given_out.copy()
    skills.advance(np.array([False, True]), skills.space.every)
    assert (given_out == kept).all()


def test_restored_random_skills_continue_identically() -> None:
    space = SkillSpace("box", 3, every=4)
    first = RandomSkills(space, 2, np.random.default_rng(0))
    for _ in range(6):
        first.advance(np.array([False, False]), space.every)
    second = RandomSkills(space, 2, np.random.default_rng(1))
    second.restore({name: array.copy() for name, array in first.state().items()})
    second.rng.bit_generator.state = first.rng.bit_generator.state
    for _ in range(10):
        first.advance(np.array([False, True]), space.every)
        second.advance(np.array([False, True]), space.every)
        assert (first.current == second.current).all()
