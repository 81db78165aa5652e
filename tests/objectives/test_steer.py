"""Steer: reward and relabelling against NumPy, the scales of quantities, and the quantities of each domain."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from objective_setup import build, make_batch

import cic
from cic.core.config import from_dict, to_dict
from cic.core.errors import UserError
from cic.core.named_quantities import NamedQuantity
from cic.learning.objectives.steer import SteerOptions

QUANTITIES = (
    NamedQuantity("speed", "2 * obs[3]", "m/s", scale=3.0),
    NamedQuantity("upright", "cos(obs[0])", scale=0.5, centre=0.25, squash=False),
    NamedQuantity("away", "obs[1] ** 2 + obs[2] ** 2", "m²", scale=2.0, centre=1.0),
)


def signals_by_numpy(obs: np.ndarray) -> np.ndarray:
    speed = np.tanh(2 * obs[:, 3] / 3)
    upright = np.clip((np.cos(obs[:, 0]) - 0.25) / 0.5, -1, 1)
    away = np.tanh((obs[:, 1] ** 2 + obs[:, 2] ** 2 - 1) / 2)
    return np.stack([speed, upright, away], axis=1)


def test_the_reward_is_that_of_numpy() -> None:
    objective: Any = build("steer", 6, quantities=QUANTITIES, exploration=0.7)
    weights = {
        name.removeprefix("novelty."): value.detach().double().numpy() for name, value in objective.named_parameters()
    }
    total, count = 0.0, 1e-4
    for seed in range(3):
        batch = make_batch(objective.skills, 6, seed=seed)
        inputs = np.concatenate([batch.obs, batch.action], axis=1).astype(np.float64)
        predictions = [
            np.maximum(inputs @ weights["weight_in"][m] + weights["bias_in"][m], 0) @ weights["weight_out"][m]
            + weights["bias_out"][m]
            for m in range(5)
        ]
        disagreement = np.var(predictions, axis=0, ddof=1).mean(axis=1)
        total, count = total + disagreement.sum(), count + len(disagreement)
        steered = (signals_by_numpy(batch.next_obs.double().numpy()) * batch.skill.numpy()).sum(axis=1)
        wanted = steered + 0.7 * np.minimum(disagreement / (total / count), 5)
        np.testing.assert_allclose(objective.reward(batch)[:, 0].numpy(), wanted, rtol=2e-4, atol=2e-5)


def test_disagreement_is_clipped() -> None:
    objective: Any = build("steer", 6, quantities=QUANTITIES, exploration=1.0)
    batch = make_batch(objective.skills, 6)
    batch.obs[0] *= 1e3
    batch.skill.zero_()
    assert float(objective.reward(batch).max()) == 5.0


def test_a_share_of_the_skills_is_redrawn() -> None:
    objective = build("steer", 6, quantities=QUANTITIES, redrawn=0.25, sparse=0.0)
    batch = make_batch(objective.skills, 6, size=4_000)
    prepared = objective.prepare(batch, torch.Generator().manual_seed(3))
    redrawn = (prepared.skill != batch.skill).any(dim=1).numpy()
    assert abs(redrawn.mean() - 0.25) < 0.03
    np.testing.assert_allclose(np.linalg.norm(prepared.skill.numpy(), axis=1), 1, rtol=1e-5)
    again = torch.Generator().manual_seed(3)
    mask = torch.rand(4_000, 1, generator=again).numpy() < 0.25
    normal = torch.randn(4_000, 3, generator=again).numpy()
    drawn = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    np.testing.assert_allclose(prepared.skill.numpy(), np.where(mask, drawn, batch.skill.numpy()), atol=1e-6)
    assert prepared.obs is batch.obs
    assert prepared.next_obs is batch.next_obs


@pytest.mark.parametrize("redrawn", [0.0, 1.0])
def test_none_or_all_skills_are_redrawn(redrawn: float) -> None:
    objective = build("steer", 6, quantities=QUANTITIES, redrawn=redrawn)
    batch = make_batch(objective.skills, 6)
    prepared = objective.prepare(batch, torch.Generator().manual_seed(3))
    assert bool((prepared.skill == batch.skill).all()) is (redrawn == 0)


def test_quantities_without_a_scale_are_standardised() -> None:
    objective: Any = build("steer", 4)
    assert [quantity.name for quantity in objective.quantities] == ["entry_0", "entry_1", "entry_2", "entry_3"]
    means, deviations = [], []
    for seed in range(5):
        batch = make_batch(objective.skills, 4, seed=seed)
        batch = batch._replace(next_obs=batch.next_obs * 7 + 100)
        objective.prepare(batch, torch.Generator().manual_seed(0))
        means.append(batch.next_obs.double().numpy().mean(axis=0))
        deviations.append(batch.next_obs.double().numpy().std(axis=0, ddof=1))
    np.testing.assert_allclose(objective.centre.numpy(), np.mean(means, axis=0), rtol=1e-4)
    np.testing.assert_allclose(objective.spread.numpy(), np.mean(deviations, axis=0), rtol=1e-3)
    wanted = np.tanh((batch.next_obs.numpy() - np.mean(means, axis=0)) / np.mean(deviations, axis=0))
    np.testing.assert_allclose(objective.signals(batch.next_obs).numpy(), wanted, atol=2e-3)


def test_given_scales_do_not_move() -> None:
    objective: Any = build("steer", 6, quantities=(*QUANTITIES, NamedQuantity("last", "obs[5]")))
    objective.prepare(make_batch(objective.skills, 6), torch.Generator().manual_seed(0))
    assert objective.spread[:3].tolist() == [3.0, 0.5, 2.0]
    assert objective.spread[3] != 1


def test_a_linear_reward_gives_its_weights() -> None:
    objective: Any = build("steer", 6, quantities=QUANTITIES)
    weights = np.array([0.6, -0.8, 0.0])
    states = make_batch(objective.skills, 6, size=256).next_obs
    reward = 3 + 5 * signals_by_numpy(states.numpy()) @ weights
    found = objective.infer_skill(states, torch.from_numpy(reward.astype(np.float32))[:, None])
    np.testing.assert_allclose(found.numpy(), weights, atol=1e-3)


def test_options_survive_json() -> None:
    options = SteerOptions(quantities=QUANTITIES, sparse=0.2)
    assert from_dict(SteerOptions, to_dict(options)) == options


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"exploration": -1.0}, "exploration must not be negative"),
        ({"redrawn": 1.5}, "redrawn must lie in"),
        ({"sparse": -0.1}, "sparse must lie in"),
        ({"skill_every": 0}, "skill_every must be at least 1"),
        ({"ensemble": 1}, "ensemble must be at least 2"),
        ({"quantities": QUANTITIES[:1] * 2}, "two quantities have the name speed"),
        ({"quantities": (NamedQuantity("far", "obs[9]"),)}, r"far uses obs\[9\], but the entries .* to obs\[5\]"),
    ],
)
def test_invalid_options_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build("steer", 6, **change)


@pytest.mark.parametrize("change", [{"name": "two words"}, {"name": "max"}, {"name": "obs"}, {"scale": 0.0}])
def test_invalid_quantities_are_named(change: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"quantity must be a word|scale of speed must be positive"):
        dataclasses.replace(QUANTITIES[0], **change)


# ---- the quantities of the domains -----------------------------------------------------------------------------

MEASURED = {  # domain → quantity → where the simulator's state has it
    "walker": {"speed": lambda p: p[:, 10], "upright": lambda p: np.cos(p[:, 2]), "spin": lambda p: p[:, 11]},
    "hopper": {"speed": lambda p: p[:, 7], "upright": lambda p: np.cos(p[:, 2]), "spin": lambda p: p[:, 9]},
    "half_cheetah": {
        "speed": lambda p: p[:, 9],
        "upright": lambda p: np.cos(p[:, 2]),
        "spin": lambda p: p[:, 11],
        "height": lambda p: p[:, 1],
    },
    "ant": {"speed_x": lambda p: p[:, 15], "speed_y": lambda p: p[:, 16], "turn": lambda p: p[:, 20]},
    "quadruped": {"turn": lambda p: p[:, 28]},
    "point_mass": {"x": lambda p: p[:, 0], "away": lambda p: p[:, 0] ** 2 + p[:, 1] ** 2},
}


@pytest.mark.parametrize("domain", MEASURED)
def test_quantities_are_those_of_the_simulator(domain: str) -> None:
    env = cic.envs.make(domain, num_envs=3, threads=1)
    objective: Any = build("steer", env.spaces.obs, quantities=env.quantities)
    obs, _ = env.reset(seed=5)
    rng = np.random.default_rng(0)
    for _ in range(5):
        obs = env.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)).obs
    values = objective.values(torch.from_numpy(obs)).numpy()
    places = {quantity.name: index for index, quantity in enumerate(env.quantities)}
    for name, measure in MEASURED[domain].items():
        np.testing.assert_allclose(values[:, places[name]], measure(env.physics()), rtol=1e-3, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("domain", cic.envs.domains())
def test_each_domain_names_its_quantities(domain: str) -> None:
    info = cic.envs.domains()[domain]
    objective: Any = build("steer", info.obs, quantities=info.quantities)
    assert objective.skills.dim == len(info.quantities) >= 3
    assert all(quantity.scale and quantity.low is not None for quantity in info.quantities)
