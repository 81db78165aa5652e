"""DADS, BeCL, VIC, VALOR, SSN4HRL, FB and HILP against NumPy in double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import Weights, build_objective, doubles, gradient, linear, relu_mlp, trunk, unit, weights_of
from objective_setup import build, make_batch
from test_values_latent_steps import ACTION, OBS, SIZE, assert_gradients, batch_for

from cic.core.types import Batch, Spaces
from cic.learning.objectives.fb import ForwardBackwardCritic
from cic.learning.successor import least_squares


def prepared(objective, batch: Batch, seed: int = 1) -> Batch:
    batch = objective.prepare(batch, torch.Generator().manual_seed(seed))
    return batch._replace(
        skill=batch.skill.double(), extras={name: tensor.double() for name, tensor in batch.extras.items()}
    )


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


# ---- DADS ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "entries"), [("normal", ()), ("cube", (2, 0)), ("onehot", ())])
def test_dads(kind, entries):
    objective = build_objective(
        "dads", OBS, ACTION, skill_kind=kind, prior_samples=23, dynamics_of=entries, skill_dim=2
    ).double()
    chosen = list(entries) or [0, 1, 2]
    mean, var = np.zeros((2, len(chosen))), np.ones((2, len(chosen)))
    for seed in range(3):
        batch = batch_for(objective, seed)
        batch = batch._replace(discount=batch.discount.clone().index_fill_(0, torch.tensor([2]), 0.0))
        batch, w = prepared(objective, batch), weights_of(objective)
        state = doubles(batch.obs)[:, chosen]
        change = doubles(batch.next_obs)[:, chosen] - state
        for row, values in enumerate((state, change)):
            mean[row] += 0.01 * (values.mean(axis=0) - mean[row])
            var[row] += 0.01 * (values.var(axis=0, ddof=1) - var[row])

        def log_q(w: Weights, state: np.ndarray, z: np.ndarray, change: np.ndarray) -> np.ndarray:
            guess = relu_mlp(w, "dynamics", np.hstack([state * w["gain"] + w["bias"], z]))
            return np.array([-0.5 * sum((c - g) ** 2 + math.log(2 * math.pi) for c, g in zip(*pair, strict=True))
                             for pair in zip(change, guess, strict=True)])  # fmt: skip

        def expected(w: Weights, state=state, change=change, batch=batch) -> float:
            own = [(x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5) for x in (state, change)]
            values = log_q(w, own[0], doubles(batch.skill), own[1])
            alive = doubles(batch.discount)[:, 0] > 0
            assert not alive[2]
            return float(-values[alive].mean())

        loss, _ = objective.loss(batch)
        assert float(loss.detach()) == pytest.approx(expected(w), rel=1e-6)
        assert_gradients(objective, loss, gradient(expected, w, ("dynamics.", "gain", "bias")), rtol=1e-4)
        state, change = ((x - mean[i]) / np.sqrt(var[i] + 1e-5) for i, x in enumerate((state, change)))
        own = log_q(w, state, doubles(batch.skill), change)
        others = [log_q(w, state, z, change) for z in doubles(batch.extras["other_skills"])]
        assert len(others) == 23
        total = sum(np.exp(np.clip(other - own, -50, 50)) for other in others)
        reward = math.log(24) - np.log(1 + total)
        np.testing.assert_allclose(doubles(objective.reward(batch)), reward[:, None], rtol=1e-6)


# ---- BeCL ------------------------------------------------------------------------------------------------------


def test_becl():
    objective = build_objective("becl", OBS, ACTION, skill_dim=4).double()
    batch, w = batch_for(objective), weights_of(objective)
    skills = [0, 1, 0, 2, 1, 0]  # the third skill is alone
    batch = batch._replace(skill=torch.eye(4).double()[skills])

    def likeness(w: Weights) -> dict[int, float]:
        f = unit(relu_mlp(w, "head", relu_mlp(w, "embedding", doubles(batch.next_obs))))
        found = {}
        for i in range(SIZE):
            row = [math.exp(float(f[i] @ f[j]) / 0.5 - 1 / 0.5) for j in range(SIZE)]  # no one is nearer than oneself
            partners = [j for j in range(SIZE) if j != i and skills[j] == skills[i]]
            if partners:
                found[i] = row[partners[0]] / (sum(row) - row[i] + 1e-6) + 1e-6
        return found

    def expected(w: Weights) -> float:
        return -sum(math.log(value) for value in likeness(w).values()) / 5

    loss, metrics = objective.loss(batch)
    assert float(loss.detach()) == pytest.approx(expected(w), rel=1e-6)
    assert float(metrics["skill/paired"]) == pytest.approx(5 / 6)
    assert_gradients(objective, loss, gradient(expected, w, ("embedding.", "head.")), rtol=1e-4)
    reward = [[likeness(w).get(i, 0.0)] for i in range(SIZE)]
    np.testing.assert_allclose(doubles(objective.reward(batch)), reward, rtol=1e-6)
    assert objective.needs.batches == 3


# ---- VIC and VALOR ---------------------------------------------------------------------------------------------


def test_vic():
    objective = build_objective("vic", OBS, ACTION, skill_dim=4).double()
    batch, w = prepared(objective, batch_for(objective)), weights_of(objective)
    over = doubles(batch.extras["skill_end"])
    assert set(over.flatten()) == {0.0, 1.0}
    np.testing.assert_allclose(doubles(batch.discount), doubles(batch_for(objective).discount) * (1 - over))
    path, z = doubles(batch.extras["path"]), doubles(batch.skill)

    def log_q(w: Weights, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        return (z * log_softmax(relu_mlp(w, "classifier", np.hstack([first, last])))).sum(axis=1)

    def expected(w: Weights) -> float:
        return float(-log_q(w, path[:, 0], path[:, -1]).mean())

    loss, _ = objective.loss(batch)
    assert float(loss.detach()) == pytest.approx(expected(w), rel=1e-6)
    assert_gradients(objective, loss, gradient(expected, w, ("classifier.",)), rtol=1e-5)
    reward = (log_q(w, doubles(batch.extras["first_obs"]), doubles(batch.next_obs)) + math.log(4))[:, None] * over
    np.testing.assert_allclose(doubles(objective.reward(batch)), reward, rtol=1e-6)


def lstm(w: Weights, name: str, steps: np.ndarray) -> np.ndarray:
    """Hochreiter & Schmidhuber 1997 with a forget gate: the last hidden state over (T, B, obs)."""
    width = w[f"{name}.weight_hh"].shape[1]
    hidden = cell = np.zeros((steps.shape[1], width))
    for x in steps:
        gates = x @ w[f"{name}.weight_ih"].T + w[f"{name}.bias_ih"]
        gates = gates + hidden @ w[f"{name}.weight_hh"].T + w[f"{name}.bias_hh"]
        enter, forget, new, leave = np.split(gates, 4, axis=1)
        sigmoid = [1 / (1 + np.exp(-gate)) for gate in (enter, forget, leave)]
        cell = sigmoid[1] * cell + sigmoid[0] * np.tanh(new)
        hidden = sigmoid[2] * np.tanh(cell)
    return hidden


def test_valor():
    objective = build_objective("valor", OBS, ACTION, skill_dim=5, first_skills=5, decoder_width=3).double()
    batch, w = prepared(objective, batch_for(objective)), weights_of(objective)
    over, z = doubles(batch.extras["skill_end"]), doubles(batch.skill)
    np.testing.assert_allclose(doubles(batch.discount), doubles(batch_for(objective).discount) * (1 - over))
    steps = np.diff(doubles(batch.extras["path"]), axis=1).transpose(1, 0, 2)
    assert steps.shape == (10, SIZE, OBS)

    def log_p(w: Weights) -> np.ndarray:
        both = [lstm(w, "decoder.cells.0", steps), lstm(w, "decoder.cells.1", steps[::-1])]
        return (z * log_softmax(linear(w, "decoder.head", np.hstack(both)))).sum(axis=1)

    loss, _ = objective.loss(batch)
    assert float(loss.detach()) == pytest.approx(-log_p(w).mean(), rel=1e-6)
    expected = gradient(lambda w: float(-log_p(w).mean()), w, ("decoder.",))
    assert_gradients(objective, loss, expected, rtol=1e-4)
    np.testing.assert_allclose(doubles(objective.reward(batch)), log_p(w)[:, None] * over, rtol=1e-6)


def test_valor_adds_skills_when_the_decoder_is_certain():
    objective = build("valor", certainty=0.5, certainty_rate=0.5)
    assert objective.skills.active == 2
    drawn = objective.skills.sample(200, np.random.default_rng(0)).argmax(axis=1)
    assert set(drawn) == {0, 1}
    counts = []
    for certainty in (0.4, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9):
        objective._grow(torch.tensor(certainty))
        counts.append(objective.skills.active)
    # Means 0.2, 0.55 ≥ 0.5 → 4 and anew, 0.45, 0.675 → 7, … up to all of them.
    assert counts == [2, 4, 4, 7, 7, 11, 11, 16, 16, 16, 16, 16]
    other = build("valor")
    other.load_state_dict(objective.state_dict())
    assert other.skills == objective.skills, "a checkpoint carries the curriculum"


# ---- SSN4HRL ---------------------------------------------------------------------------------------------------


def test_ssn4hrl():
    objective = build("ssn4hrl", skill_dim=3, plane=(4, 1))
    batch = make_batch(objective.skills, size=200)
    here, there = doubles(batch.obs)[:, [4, 1]], doubles(batch.next_obs)[:, [4, 1]]
    cells = [tuple(np.floor(5 * point).astype(int)) for point in there]
    skills = doubles(batch.skill).argmax(axis=1)
    rewards, shared = [], 0
    for row in range(200):
        inside = [other for other in range(200) if cells[other] == cells[row]]
        own = [other for other in inside if skills[other] == skills[row]]
        shared += len(inside) > len(own)
        speed = math.hypot(*(there[row] - here[row]))
        cost = 0.5 * 0.01 * (doubles(batch.action)[row] ** 2).sum()
        rewards.append([10 * speed - cost + 0.05 * math.log(len(own) / len(inside))])
    assert shared > 10
    np.testing.assert_allclose(doubles(objective.reward(batch)), rewards, rtol=1e-4, atol=1e-5)


def test_ssn4hrls_policy_sees_every_product_of_state_and_skill():
    objective = build("ssn4hrl", obs=4, skill_dim=3)
    batch = make_batch(objective.skills, obs=4)
    seen = doubles(objective.policy_input(batch.obs, batch.skill))
    for row in range(32):
        s, z = doubles(batch.obs[row]), doubles(batch.skill[row])
        np.testing.assert_allclose(seen[row], np.concatenate([s, z, np.outer(s, z).ravel()]), rtol=1e-6)


# ---- FB --------------------------------------------------------------------------------------------------------

SKILL = 4


def forward_map(w: Weights, obs: np.ndarray, action: np.ndarray, z: np.ndarray) -> np.ndarray:
    """F (2, B, d)"""
    streams = []
    for name, other in (("with_action", action), ("with_skill", z)):
        hidden = trunk(w, f"trunk.{name}.0", np.hstack([obs, other]))
        streams.append(np.maximum(linear(w, f"trunk.{name}.1", hidden), 0))
    return np.stack([relu_mlp(w, f"heads.{head}", np.hstack(streams)) for head in range(2)])


def backward_map(w: Weights, obs: np.ndarray) -> np.ndarray:
    hidden = trunk(w, "trunk.backward_net.0", obs)
    return math.sqrt(SKILL) * unit(relu_mlp(w, "trunk.backward_net.1", hidden))


def fb_loss(w: Weights, later: np.ndarray, batch: Batch, kappa: float) -> float:
    """By loops over pairs; `later` is min_k M'_k."""
    obs, action, z = doubles(batch.obs)[:, :OBS], doubles(batch.action), doubles(batch.skill)
    forward, backward = forward_map(w, obs, action, z), backward_map(w, doubles(batch.next_obs)[:, :OBS])
    gamma, pairs = doubles(batch.discount)[:, 0], [(i, j) for i in range(SIZE) for j in range(SIZE) if i != j]
    total = 0.0
    for head in forward:
        errors = [(head[i] @ backward[j] - gamma[i] * later[i, j]) ** 2 for i, j in pairs]
        total += 0.5 * float(np.mean(errors)) - float(np.mean([head[i] @ backward[i] for i in range(SIZE)]))
    off = float(np.mean([(backward[i] @ backward[j]) ** 2 for i, j in pairs]))
    return total + kappa * (off - 2 * float(np.mean([b @ b for b in backward])))


@pytest.mark.parametrize("kappa", [0.0, 1.0])
def test_fb_learns_both_maps_by_its_own_rule(kappa):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        online, target = (ForwardBackwardCritic(Spaces(OBS, ACTION), SKILL, 6, kappa).double() for _ in range(2))
    objective = build_objective("fb", OBS, ACTION, skill_dim=SKILL)
    batch = batch_for(objective)
    raw_next, action = doubles(batch.next_obs), np.random.default_rng(0).uniform(-1, 1, (SIZE, ACTION))
    x, later_x = (torch.cat([obs, batch.skill], dim=1) for obs in (batch.obs, batch.next_obs))
    batch = batch._replace(obs=x, next_obs=later_x, reward=torch.zeros(SIZE, SKILL).double())
    w, t = weights_of(online), weights_of(target)
    table = forward_map(t, raw_next, action, doubles(batch.skill)) @ backward_map(t, raw_next).T
    later = table.min(axis=0)
    loss, _ = online.td_loss(target, batch, torch.from_numpy(action), torch.ones(SIZE, 1).double())
    assert float(loss.detach()) == pytest.approx(fb_loss(w, later, batch, kappa), rel=1e-6)
    assert_gradients(online, loss, gradient(lambda w: fb_loss(w, later, batch, kappa), w, ("",)), rtol=1e-4)
    value = (forward_map(w, doubles(batch.obs)[:, :OBS], action, doubles(batch.skill)) * doubles(batch.skill)).sum(2)
    np.testing.assert_allclose(doubles(online(x, torch.from_numpy(action), batch.skill))[..., 0], value, rtol=1e-6)


def test_fb_redraws_skills_half_from_the_prior_half_as_states():
    objective = build("fb", skill_dim=6)
    batch = make_batch(objective.skills, size=2_000)
    again = objective.prepare(batch, torch.Generator().manual_seed(0))
    assert not (again.skill == batch.skill).all(dim=1).any(), "the replayed skill is ignored"
    np.testing.assert_allclose(doubles(again.skill.norm(dim=1)), math.sqrt(6), rtol=1e-5)
    states = objective._critic[0].trunk.backward_features(batch.obs)
    nearest = torch.cdist(again.skill.double(), states.double()).amin(dim=1)
    assert float((nearest < 1e-3).float().mean()) == pytest.approx(0.5, abs=0.05)
    for share in (0.0, 1.0):
        objective = build("fb", skill_dim=6, mixed_skills=share)
        again = objective.prepare(batch, torch.Generator().manual_seed(0))
        states = objective._critic[0].trunk.backward_features(batch.obs)
        nearest = torch.cdist(again.skill.double(), states.double()).amin(dim=1)
        assert float((nearest < 1e-3).float().mean()) == pytest.approx(share, abs=0.01)


def test_fb_infers_a_skill_as_the_mean_of_rewarded_states():
    objective = build("fb", obs=OBS, skill_dim=SKILL)
    batch = make_batch(objective.skills, obs=OBS, size=50)
    w = weights_of(objective.make_critic())
    mean = (doubles(batch.reward) * backward_map(w, doubles(batch.next_obs))).mean(axis=0)
    found = objective.infer_skill(batch.next_obs, batch.reward)
    np.testing.assert_allclose(doubles(found), math.sqrt(SKILL) * mean / np.linalg.norm(mean), rtol=1e-4, atol=1e-5)
    assert objective.infer_skill(batch.next_obs, torch.zeros(50, 1)) is None
    one = objective.goal_skill(batch.obs, batch.next_obs)
    np.testing.assert_allclose(doubles(one), backward_map(w, doubles(batch.next_obs)), rtol=1e-4, atol=1e-5)


# ---- HILP ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expectile", [0.5, 0.9])
def test_hilp(expectile):
    objective = build_objective("hilp", OBS, ACTION, skill_dim=4, expectile=expectile).double()
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():  # targets apart from what they follow
        for weight in objective.targets.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=noise)
    batch, w = prepared(objective, batch_for(objective)), weights_of(objective)
    aim = batch.extras["aim"].clone()
    aim[1] = batch.obs[1]  # there already
    batch = batch.with_extras(aim=aim)
    obs, later, goal = doubles(batch.obs), doubles(batch.next_obs), doubles(aim)

    def value(w: Weights, name: str, x: np.ndarray) -> np.ndarray:
        step = relu_mlp(w, name, x) - relu_mlp(w, name, goal)
        return -np.sqrt(np.maximum((step**2).sum(axis=1), 1e-6))

    there = np.array([0.0, 1, 0, 0, 0, 0])
    q = [there - 1 + 0.98 * (1 - there) * value(w, f"targets.{k}", later) for k in (0, 1)]
    better = np.minimum(*q) >= (value(w, "targets.0", obs) + value(w, "targets.1", obs)) / 2
    assert 0 < better.sum() < SIZE
    weight = np.where(better, expectile, 1 - expectile)

    def expected(w: Weights) -> float:
        return float(sum((weight * (q[k] - value(w, f"latents.{k}", obs)) ** 2).mean() for k in (0, 1)))

    loss, _ = objective.loss(batch)
    assert float(loss.detach()) == pytest.approx(expected(w), rel=1e-6)
    assert_gradients(objective, loss, gradient(expected, w, ("latents.",)), rtol=1e-4)

    centre, spread = np.zeros(4), 1.0
    for _ in range(3):
        latent = relu_mlp(w, "latents.0", later)
        centre = 0.995 * centre + 0.005 * latent.mean(axis=0)
        spread = 0.995 * spread + 0.005 * np.sqrt(((latent - centre) ** 2).mean())
        np.testing.assert_allclose(doubles(objective.reward(batch)), (latent - centre) / spread, rtol=1e-5)
    objective.after_step()
    for name, slow in weights_of(objective.targets).items():
        fast = w[f"latents.{name}"]
        np.testing.assert_allclose(slow, 0.995 * w[f"targets.{name}"] + 0.005 * fast, rtol=1e-6)


def test_hilp_aims_at_the_same_episode_most_often_and_mixes_skills():
    objective = build("hilp", skill_dim=4)
    batch = make_batch(objective.skills, size=4_000)
    again = objective.prepare(batch, torch.Generator().manual_seed(0))
    same = (again.extras["aim"] == batch.extras["goal"]).all(dim=1)
    anywhere = (again.extras["aim"] == batch.extras["random_goal"]).all(dim=1)
    assert (same ^ anywhere).all()
    assert float(same.float().mean()) == pytest.approx(0.625, abs=0.03)
    np.testing.assert_allclose(doubles(again.skill.norm(dim=1)), 2.0, rtol=1e-5)
    features = doubles(objective.latents[0](batch.next_obs))
    moments = features.T @ features / 4_000
    leading = features @ np.linalg.inv(moments + 0.01 * np.trace(moments) / 4 * np.eye(4))
    nearest = torch.cdist(again.skill.double(), torch.from_numpy(2 * unit(leading))).amin(dim=1)
    assert float((nearest < 1e-3).float().mean()) == pytest.approx(0.5, abs=0.04)


def test_hilp_infers_by_ridge_regression():
    objective = build("hilp", skill_dim=4)
    batch = make_batch(objective.skills, size=300)
    objective.reward(batch)
    reward = torch.randn(300, 1, generator=torch.Generator().manual_seed(3))
    features = doubles(objective.latents[0](batch.next_obs)) - doubles(objective.centre)
    moments = features.T @ features
    wanted = np.linalg.inv(moments + 0.01 * np.trace(moments) / 4 * np.eye(4)) @ features.T @ doubles(reward)
    found = objective.infer_skill(batch.next_obs, reward)
    np.testing.assert_allclose(doubles(found), 2 * unit(wanted.T)[0], rtol=1e-4, atol=1e-5)
    assert objective.infer_skill(batch.next_obs, torch.zeros(300, 1)) is None


def test_hilp_names_the_skill_of_a_reward_though_some_features_hardly_differ():
    """Plain least squares would spend the skill on the flat direction, to which noise in the rewards points."""
    objective = build("hilp", skill_dim=4)
    batch = make_batch(objective.skills, size=300)
    with torch.no_grad():
        objective.latents[0][-1].weight[3] *= 1e-4
    features = (objective.latents[0](batch.next_obs) - objective.centre).detach()
    planted = torch.tensor([1.0, -1.0, 1.0, 0.0])
    noise = 0.1 * torch.randn(300, 1, generator=torch.Generator().manual_seed(4))
    found = objective.infer_skill(batch.next_obs, features @ planted[:, None] + noise)
    assert found is not None
    assert float(found @ planted / found.norm() / planted.norm()) > 0.9
    assert float(least_squares(features, features @ planted[:, None] + noise) @ planted / 3**0.5) < 0.5
