from __future__ import annotations

import numpy as np
import pytest

from cic.core.errors import UserError
from cic.explore.loaded_agent import skill_arguments
from cic.explore.skill_input import between, constant, entry_range, typed, with_entry
from cic.learning.objectives import SkillSpace

BOX, ONEHOT, SPHERE = SkillSpace("box", 4), SkillSpace("onehot", 5), SkillSpace("sphere", 3, radius=2.0)
EVERY = [BOX, ONEHOT, SPHERE, SkillSpace("cube", 3), SkillSpace("normal", 3), SkillSpace("sphere", 1)]


@pytest.mark.parametrize("space", EVERY, ids=lambda space: f"{space.kind}{space.dim}")
def test_whatever_a_hand_does_is_a_skill(space: SkillSpace) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        first, second = space.sample(2, rng)
        space.check(between(space, first, second, float(rng.random())).tolist())
        if space.kind != "onehot":
            low, high = entry_range(space)
            place = int(rng.integers(space.dim))
            value = float(rng.uniform(low, high))
            changed = with_entry(space, first, place, value)
            if space.dim > 1:
                space.check(changed.tolist())
                assert changed[place] == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(between(space, first, second, 0.0), first, atol=1e-5)
    np.testing.assert_allclose(between(space, first, second, 1.0), second, atol=1e-5)


def test_half_way_on_the_sphere_is_equally_far_from_both() -> None:
    first, second = SPHERE.sample(2, np.random.default_rng(1))
    middle = between(SPHERE, first, second, 0.5)
    assert middle @ first == pytest.approx(middle @ second, rel=1e-5)
    opposite = between(SPHERE, first, -first, 0.5)
    assert np.linalg.norm(opposite) == pytest.approx(2.0, rel=1e-5)


def test_constants() -> None:
    assert constant(BOX, 0.25).tolist() == [0.25] * 4
    assert constant(ONEHOT, 3).tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("space", EVERY, ids=lambda space: f"{space.kind}{space.dim}")
def test_a_skill_spelled_out_is_read_back_bit_exactly(space: SkillSpace) -> None:
    for skill in space.sample(20, np.random.default_rng(2)):
        words = skill_arguments(space, skill)
        np.testing.assert_array_equal(typed(space, ", ".join(words)), skill)
        np.testing.assert_array_equal(space.check([float(word) for word in words]), skill)


@pytest.mark.parametrize(
    ("text", "said"),
    [("a b", "numbers"), ("", "enter a skill"), ("2", "lie in"), ("1 2 3", "dimension 4"), ("nan", "finite")],
)
def test_what_is_no_skill_gets_a_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        typed(BOX, text)
