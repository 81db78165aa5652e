"""Named quantities of the user's environments: indices, formulas, entries of a Dict and functions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import cic
from cic.core.errors import UserError


class Ball(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Dict(
        {"position": gymnasium.spaces.Box(-1, 1, (2,)), "velocity": gymnasium.spaces.Box(-9, 9, (2,))}
    )
    action_space = gymnasium.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = np.zeros(2, np.float32)
        return self._seen(np.zeros(2)), {}

    def step(self, action: Any) -> Any:
        self.at = np.clip(self.at + 0.1 * action, -1, 1)
        return self._seen(action), 0.0, False, False, {}

    def _seen(self, velocity: Any) -> dict[str, Any]:
        return {"position": self.at.astype(np.float32), "velocity": np.asarray(velocity, np.float32)}


def pendulum() -> Any:
    return gymnasium.make("Pendulum-v1")


def given(name: str, factory: Any, quantities: Any) -> dict[str, str]:
    cic.register_env(name, factory, quantities)
    return {quantity.name: quantity.formula for quantity in cic.envs.named_quantities(name)}


def test_indices_formulas_and_entries_by_name() -> None:
    found = given("ball", Ball, {"x": 0, "y": "position[1]", "energy": "velocity[0] ** 2 + velocity[1]**2"})
    assert found == {"x": "obs[0]", "y": "obs[1]", "energy": "obs[2] ** 2 + obs[3]**2"}


def test_without_names_the_entries_are_the_quantities() -> None:
    assert given("ball", Ball, None) == {
        "position_0": "obs[0]",
        "position_1": "obs[1]",
        "velocity_0": "obs[2]",
        "velocity_1": "obs[3]",
    }
    assert [one.name for one in cic.envs.named_quantities("gymnasium:Pendulum-v1")] == ["entry_0", "entry_1", "entry_2"]


@pytest.mark.parametrize("factory", [Ball, pendulum])
def test_functions_become_entries_of_the_observation(factory: Any) -> None:
    def total(seen: Any) -> float:
        return float(sum(np.sum(part) for part in seen.values()) if isinstance(seen, dict) else np.sum(seen))

    found = given("summed", factory, {"first": 0, "total": total})
    assert found["first"] == "obs[0]"
    env = cic.envs.make("summed", num_envs=2)
    obs, _ = env.reset(seed=0)
    for _ in range(3):
        place = int(found["total"][4:-1])
        others = np.delete(obs, place, axis=1)
        np.testing.assert_allclose(obs[:, place], others.sum(axis=1), rtol=1e-5, atol=1e-6)
        obs = env.step(np.full((2, env.spaces.action), 0.5, np.float32)).obs
    assert env.exact_state is False  # as without the function: neither environment offers its state


def test_a_quantity_of_its_own_keeps_unit_and_scale() -> None:
    cic.register_env("ball", Ball, {"x": cic.NamedQuantity("any", "position[0]", "m", scale=0.5)})
    (quantity,) = cic.envs.named_quantities("ball")
    assert (quantity.label, quantity.formula, quantity.scale) == ("x (m)", "obs[0]", 0.5)


@pytest.mark.parametrize(
    ("quantities", "message"),
    [
        ({"x": 9}, r"x uses obs\[9\]; the entries are position\[0\], position"),
        ({"x": "speed[0]"}, r"x uses speed\[0\]"),
        ({"x": "position[0]."}, "position 7: this is not a formula|not a formula"),
        ({"x": None}, "must be an index, a formula, a function"),
        ({"two words": 0}, "must be a word"),
        ([0, 1], "must be a dict"),
    ],
)
def test_invalid_quantities(quantities: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        given("ball", Ball, quantities)


def test_functions_need_a_vector_or_a_dict() -> None:
    class Picture(Ball):
        observation_space = gymnasium.spaces.Box(0, 1, (2, 2))  # type: ignore[assignment]

    with pytest.raises(UserError, match="use formulas instead"):
        given("picture", Picture, {"x": lambda seen: 0.0})
    given("ball", Ball, {"x": lambda seen: seen["nothing"]})
    env = cic.envs.make("ball")
    with pytest.raises(UserError, match=r"its reset\(\) failed with KeyError: 'nothing'"):
        env.reset(seed=0)
