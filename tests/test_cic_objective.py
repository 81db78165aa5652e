"""CIC's loss and rewards against loops in NumPy, with every option."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from helpers import (
    Doubles,
    Welford,
    build_objective,
    cosines,
    doubles,
    ensemble_disagreement,
    infonce_loss,
    log_density_ratio,
    paper_reward,
    random_batch,
    released_loss,
    released_reward,
    relu_mlp,
    transition_embedding,
    unit,
    weights_of,
)

from cic.core.errors import UserError
from cic.core.types import Batch
from cic.learning.objectives import get_objective
from cic.learning.objectives.cic import CIC, CICOptions
from cic.training.settings import pretrain_defaults

OBS, ACTION, SKILL, TEMPERATURE = 3, 2, 4, 0.5


def cic(**options: object) -> CIC:
    """Small, with biases that are not zero: at initialisation a narrow ReLU network is mostly silent."""
    objective = build_objective("cic", OBS, ACTION, hidden=8, **({"skill_dim": SKILL} | options))
    assert isinstance(objective, CIC)
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in objective.parameters():
            value += 0.4 * torch.randn(value.shape, generator=noise)
    return objective


def batch_of(size: int, seed: int = 0, skill: int = SKILL) -> Batch:
    return random_batch(size, OBS, ACTION, skill, seed)


# ---- loss ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 16, 40])  # with 3, every sum is below e^{1/T} and the floor of 1e-6 counts
@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize("name", ["released", "infonce"])
def test_nce_loss_is_the_formula(name: str, temperature: float, size: int) -> None:
    objective, batch = cic(loss=name, temperature=temperature), batch_of(size)
    formula = {"released": released_loss, "infonce": infonce_loss}[name]
    expected = formula(cosines(weights_of(objective), batch), temperature)
    loss, metrics = objective.loss(batch)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert float(metrics["representation/loss"]) == float(loss.detach())


def test_the_loss_above_is_compared_on_both_sides_of_its_floor() -> None:
    similarity = cosines(weights_of(cic()), batch_of(16))
    sums = np.exp(similarity / TEMPERATURE).sum(axis=1) - math.exp(1 / TEMPERATURE)
    assert sums.min() < 0 < sums.max()


@pytest.mark.parametrize("embedding", [None, 7])
def test_without_projection_the_raw_skill_is_the_query(embedding: int | None) -> None:
    objective, batch = cic(projection=False, embedding=embedding), batch_of(20)
    assert not [name for name in objective.state_dict() if "discriminator.skill" in name]
    expected = released_loss(cosines(weights_of(objective), batch, projection=False))
    assert float(objective.loss(batch)[0].detach()) == pytest.approx(expected, rel=1e-4)


def test_the_ensembles_loss_is_the_members_mean() -> None:
    objective, batch = cic(reward="uncertainty", ensemble=3), batch_of(20)
    w = weights_of(objective)
    members = ["discriminator", "others.0", "others.1"]
    expected = np.mean([released_loss(cosines(w, batch, member=member)) for member in members])
    assert float(objective.loss(batch)[0].detach()) == pytest.approx(expected, rel=1e-4)


def test_members_of_the_ensemble_start_apart() -> None:
    objective = cic(reward="uncertainty", ensemble=3)
    first, second = objective.others[0], objective.others[1]
    assert not torch.equal(first.prediction[0].weight, second.prediction[0].weight)


def test_only_the_uncertainty_reward_has_an_ensemble() -> None:
    assert len(cic().others) == 0
    assert len(cic(reward="uncertainty").others) == CICOptions().ensemble - 1


# ---- rewards ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normaliser", ["variance", "std", "mean", "none"])
def test_released_particle_reward_follows_its_running_statistic(normaliser: str) -> None:
    objective, statistic = cic(normaliser=normaliser, knn=5), Welford()
    w = weights_of(objective)
    for seed in range(4):
        batch = random_batch(20, OBS, ACTION, SKILL, seed, spread=1 + seed)
        expected = released_reward(relu_mlp(w, "state", doubles(batch.next_obs)), 5, statistic, normaliser)
        reward = objective.reward(batch)
        assert reward.shape == (20, 1)
        assert not reward.requires_grad
        np.testing.assert_allclose(reward.numpy(), expected, rtol=1e-4, atol=1e-6)
        if normaliser != "none":
            assert float(objective.statistics.var) == pytest.approx(statistic.var, rel=1e-4)
            assert float(objective.statistics.count) == pytest.approx(statistic.count)


def test_released_particle_reward_is_zero_for_collapsed_states() -> None:
    objective, batch = cic(normaliser="none"), batch_of(20)
    same = batch._replace(next_obs=batch.next_obs[:1].expand(20, -1))
    assert (objective.reward(same) == 0).all()


def test_distances_below_the_margin_are_floored_one_by_one() -> None:
    """The floor is inside the mean: one pair at a distance must not be eaten by neighbours at 0."""
    objective = cic(normaliser="none", knn=4)
    batch = batch_of(20)
    apart = batch.next_obs[:1].repeat(20, 1)
    apart[1:3] += 1e-3
    batch = batch._replace(next_obs=apart)
    points = relu_mlp(weights_of(objective), "state", doubles(batch.next_obs))
    expected = released_reward(points, 4, Welford(), "none")
    assert 0 < expected.max() < 0.01
    np.testing.assert_allclose(objective.reward(batch).numpy(), expected, rtol=1e-2, atol=1e-8)


def test_the_default_is_what_the_released_code_does() -> None:
    assert dataclasses.asdict(CICOptions()) == {
        "loss": "released",
        "particles": "next_state",
        "particle_reward": "released",
        "normaliser": "variance",
        "reward": "entropy",
        "reward_weight": 1.0,
        "reward_from": 0.0,
        "representation": True,
        "entropy": True,
        "projection": True,
        "skill_dim": 64,
        "embedding": None,
        "skill_every": 50,
        "temperature": 0.5,
        "knn": 16,
        "ensemble": 4,
        "encode_policy": False,
        "novelty": 0.0,
    }


@pytest.mark.parametrize("size", [16, 10])
def test_in_a_small_batch_every_point_is_a_neighbour(size: int) -> None:
    """k = 16 counts the point itself, so a batch of 16 has all sixteen."""
    objective, batch = cic(normaliser="none"), batch_of(size)
    points = relu_mlp(weights_of(objective), "state", doubles(batch.next_obs))
    expected = released_reward(points, size, Welford(), "none")
    np.testing.assert_allclose(objective.reward(batch).numpy(), expected, rtol=1e-4)


def test_papers_particle_reward_is_the_mean_log_distance_to_others() -> None:
    objective, batch = cic(particle_reward="paper", knn=5), batch_of(20)
    points = relu_mlp(weights_of(objective), "state", doubles(batch.next_obs))
    np.testing.assert_allclose(objective.reward(batch).numpy(), paper_reward(points, 5), rtol=1e-4, atol=1e-5)


def test_papers_particle_reward_stays_finite_for_duplicates() -> None:
    objective, batch = cic(particle_reward="paper"), batch_of(20)
    same = batch._replace(next_obs=batch.next_obs[:1].expand(20, -1))
    assert torch.isfinite(objective.reward(same)).all()


@pytest.mark.parametrize("particle_reward", ["released", "paper"])
def test_transition_particles_embed_both_states(particle_reward: str) -> None:
    objective = cic(particles="transition", particle_reward=particle_reward, knn=5, normaliser="std")
    batch = batch_of(20)
    points = transition_embedding(weights_of(objective), batch)
    expected = paper_reward(points, 5) if particle_reward == "paper" else released_reward(points, 5, Welford(), "std")
    np.testing.assert_allclose(objective.reward(batch).numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("term", ["discriminator", "similarity", "uncertainty"])
@pytest.mark.parametrize("entropy", [True, False])
@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_added_reward_is_its_formula(term: str, entropy: bool, weight: float) -> None:
    objective, batch = cic(reward=term, reward_weight=weight, entropy=entropy, knn=5), batch_of(20)
    w = weights_of(objective)
    similarity = cosines(w, batch)
    if term == "discriminator":
        added = log_density_ratio(similarity)
    elif term == "similarity":
        added = np.diagonal(similarity)[:, None]
    else:
        added = ensemble_disagreement([similarity, *(cosines(w, batch, member=f"others.{m}") for m in range(3))])
    particles = released_reward(relu_mlp(w, "state", doubles(batch.next_obs)), 5, Welford(), "variance")
    expected = weight * added + (particles if entropy else 0)
    np.testing.assert_allclose(objective.reward(batch).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_without_entropy_and_without_a_named_term_the_discriminator_rewards() -> None:
    objective, batch = cic(entropy=False), batch_of(20)
    expected = log_density_ratio(cosines(weights_of(objective), batch))
    np.testing.assert_allclose(objective.reward(batch).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_disagreement_of_equal_members_is_zero_and_never_negative() -> None:
    objective, batch = cic(reward="uncertainty", entropy=False), batch_of(20)
    assert (objective.reward(batch) > 0).all()
    for member in objective.others:
        member.load_state_dict(objective.discriminator.state_dict())
    np.testing.assert_allclose(objective.reward(batch).numpy(), 0, atol=1e-6)


# ---- other options ---------------------------------------------------------------------------------------------


def test_without_representation_learning_nothing_is_optimised() -> None:
    assert cic(representation=False).parameter_groups(1e-4) == []
    (group,) = cic().parameter_groups(1e-4)
    assert group["lr"] == 1e-4
    assert len(group["params"]) == len(list(cic().parameters()))


@pytest.mark.parametrize(
    ("options", "width"),
    [({}, OBS + SKILL), ({"encode_policy": True}, 2 * SKILL), ({"encode_policy": True, "embedding": 7}, 14)],
)
def test_policy_inputs_are_raw_or_encoded(options: dict[str, object], width: int) -> None:
    objective, batch = cic(**options), batch_of(6)
    seen = objective.policy_input(batch.obs, batch.skill)
    assert objective.policy_input_dim == width == seen.shape[1]
    assert not seen.requires_grad
    obs, skill = doubles(batch.obs), doubles(batch.skill)
    if options:
        w = weights_of(objective)
        obs, skill = relu_mlp(w, "state", obs), relu_mlp(w, "discriminator.skill", skill)
    np.testing.assert_allclose(seen.numpy(), np.concatenate([obs, skill], axis=1), rtol=1e-4, atol=1e-6)
    assert objective.make_critic()(seen, batch.action, batch.skill).shape == (2, 6, 1)


@pytest.mark.parametrize("embedding", [SKILL, 7])
def test_encoded_policy_without_projection_sees_the_raw_skill(embedding: int) -> None:
    objective, batch = cic(encode_policy=True, projection=False, embedding=embedding), batch_of(6)
    seen = objective.policy_input(batch.obs, batch.skill)
    assert seen.shape[1] == objective.policy_input_dim
    assert torch.equal(seen[:, embedding:], batch.skill)


@pytest.mark.parametrize("skill_dim", [1, 2, 128])
def test_any_skill_dimension_works(skill_dim: int) -> None:
    objective, batch = cic(skill_dim=skill_dim), batch_of(20, skill=skill_dim)
    assert objective.skills.dim == objective.width == skill_dim
    assert torch.isfinite(objective.loss(batch)[0])
    assert torch.isfinite(objective.reward(batch)).all()


def test_diagnosis_names_the_skill_of_each_transition() -> None:
    objective = cic()
    other_way = []
    for seed in range(8):
        batch = batch_of(20, seed)
        similarity = cosines(weights_of(objective), batch)
        right = np.mean([int(np.argmax(similarity[:, j])) == j for j in range(20)])
        found = objective.diagnose(batch)
        assert float(found["skill/accuracy"]) == pytest.approx(right)
        assert float(found["skill/chance"]) == pytest.approx(1 / 20)
        assert float(found["contrast/cosine"]) == pytest.approx(float(similarity.mean()), abs=1e-6)
        other_way.append(np.mean([int(np.argmax(similarity[i])) == i for i in range(20)]) != right)
    assert any(other_way), "naming the skill's transition is another question, and must be told apart here"


def test_encoders_have_orthogonal_weights_and_zero_biases() -> None:
    objective = build_objective("cic", obs=24, hidden=32, skill_dim=8)
    for name, value in objective.named_parameters():
        if name.endswith("bias"):
            assert (value == 0).all(), name
        else:
            rows = value if value.shape[0] <= value.shape[1] else value.T
            np.testing.assert_allclose(doubles(rows @ rows.T), np.eye(len(rows)), atol=1e-5, err_msg=name)


def test_encoders_have_the_papers_shape() -> None:
    objective = get_objective("cic")
    built = build_objective("cic", obs=24, hidden=32)
    assert isinstance(built, objective)
    shapes = {name: tuple(value.shape) for name, value in built.named_parameters() if name.endswith("weight")}
    assert shapes == {
        "state.0.weight": (32, 24),
        "state.2.weight": (32, 32),
        "state.4.weight": (64, 32),
        "discriminator.skill.0.weight": (32, 64),
        "discriminator.skill.2.weight": (32, 32),
        "discriminator.skill.4.weight": (64, 32),
        "discriminator.prediction.0.weight": (32, 128),
        "discriminator.prediction.2.weight": (32, 32),
        "discriminator.prediction.4.weight": (64, 32),
    }


def test_running_statistic_travels_with_the_module() -> None:
    first, second, batch = cic(), cic(), batch_of(20)
    first.reward(batch)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.reward(batch), second.reward(batch))


@pytest.mark.parametrize(
    "options",
    [
        {"skill_dim": 0},
        {"temperature": 0.0},
        {"temperature": float("nan")},
        {"knn": 0},
        {"reward_from": -0.1},
        {"reward_from": 1.0},
        {"reward_from": 0.5, "entropy": False},
        {"skill_every": 0},
        {"ensemble": 1},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UserError):
        CICOptions(**options)  # type: ignore[arg-type]


def test_the_paper_preset_is_the_text_taken_literally() -> None:
    options = CICOptions(**CIC.presets["paper"])
    assert (options.loss, options.particles, options.particle_reward) == ("infonce", "transition", "paper")
    assert options.encode_policy
    assert next(iter(CIC.presets)) == "default"


@pytest.mark.parametrize(
    ("scale", "preset", "loss"),
    [
        ("laptop", None, "infonce"),
        ("smoke", None, "infonce"),
        ("paper", None, "released"),
        ("laptop", "released", "released"),
        ("laptop", "distinct", "released"),
        ("paper", "paper", "infonce"),
    ],
)
def test_only_small_scales_have_another_loss_by_default(scale: str, preset: str | None, loss: str) -> None:
    assert pretrain_defaults("walker", "cic", scale, preset).options.loss == loss


def gradients(objective: CIC, batch: Batch) -> dict[str, float]:
    """The norm of each parameter's."""
    names, values = zip(*objective.named_parameters(), strict=True)
    found = torch.autograd.grad(objective.loss(batch)[0], values)
    return {name: float(gradient.norm()) for name, gradient in zip(names, found, strict=True)}


def pointed(objective: CIC, batch: Batch) -> Doubles:
    """[i, j]: cosines of skill i's first numbers, seen from 1/2, and of what the head says of transition j."""
    w = weights_of(objective)
    pair = np.concatenate([relu_mlp(w, "state", doubles(obs)) for obs in (batch.obs, batch.next_obs)], axis=1)
    return unit(2 * doubles(batch.skill)[:, :8] - 1) @ unit(relu_mlp(w, "pointing", pair)).T


@pytest.mark.parametrize("dim", [3, 12])  # fewer numbers than a direction has, and more
def test_the_distinct_preset_pays_half_of_the_skills_for_going_where_they_point(dim: int) -> None:
    objective = cic(**CIC.presets["distinct"] | {"knn": 5, "skill_dim": dim})
    batch = batch_of(40, skill=dim)
    batch = batch._replace(skill=torch.from_numpy(objective.skills.sample(40, np.random.default_rng(0))))
    particles = released_reward(relu_mlp(weights_of(objective), "state", doubles(batch.next_obs)), 5, Welford(), "std")
    first = doubles(batch.skill)[:, :1]
    assert 10 < (first > 0.5).sum() < 30
    expected = particles + 4 * np.maximum(2 * first - 1, 0) * np.diagonal(pointed(objective, batch))[:, None]
    np.testing.assert_allclose(objective.reward(batch).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_the_distinct_preset_only_explores_at_first() -> None:
    distinct, plain = cic(**CIC.presets["distinct"] | {"knn": 5}), cic(normaliser="std", knn=5)
    plain.load_state_dict({name: value for name, value in distinct.state_dict().items() if "pointing" not in name})
    batch = batch_of(20)
    for progress, as_plain in ((0.0, True), (0.59, True), (0.6, False), (1.0, False)):
        distinct.progress = progress
        assert torch.equal(distinct.reward(batch), plain.reward(batch)) == as_plain, progress


def test_where_skills_point_is_learned_beside_the_embedding_not_into_it() -> None:
    distinct, plain = cic(**CIC.presets["distinct"]), cic(normaliser="std")
    plain.load_state_dict({name: value for name, value in distinct.state_dict().items() if "pointing" not in name})
    batch = batch_of(16)
    ours, theirs = gradients(distinct, batch), gradients(plain, batch)
    assert {name: value for name, value in ours.items() if "pointing" not in name} == theirs
    assert any(value for name, value in ours.items() if "pointing" in name)
    expected = released_loss(cosines(weights_of(distinct), batch)) + released_loss(pointed(distinct, batch))
    assert distinct.loss(batch)[0].item() == pytest.approx(expected, rel=1e-4)


# ---- novelty ---------------------------------------------------------------------------------------------------


def forward_models(w: dict[str, Doubles], batch: Batch) -> Doubles:
    """(members, B, obs)"""
    inputs = np.concatenate([doubles(batch.obs), doubles(batch.action)], axis=1)
    members = []
    for weight_in, bias_in, weight_out, bias_out in zip(
        *(w[f"novelty.{name}"] for name in ("weight_in", "bias_in", "weight_out", "bias_out")), strict=True
    ):
        members.append(np.maximum(inputs @ weight_in + bias_in, 0) @ weight_out + bias_out)
    return np.stack(members)


def test_novelty_adds_the_relative_disagreement_of_forward_models() -> None:
    weight = 0.7
    objective, plain = cic(loss="infonce", novelty=weight), cic(loss="infonce")
    plain.load_state_dict({k: v for k, v in objective.state_dict().items() if not k.startswith("novelty.")})
    statistics = Welford()
    for seed in range(3):
        batch = batch_of(20, seed)
        predictions = forward_models(weights_of(objective), batch)
        error = np.linalg.norm(doubles(batch.next_obs) - predictions, axis=2).mean()
        loss, metrics = objective.loss(batch)
        assert float(metrics["novelty/error"]) == pytest.approx(error, rel=1e-5)
        assert float((loss - plain.loss(batch)[0]).detach()) == pytest.approx(error, rel=1e-4)
        disagreement = predictions.var(axis=0, ddof=1).mean(axis=1)
        statistics.add(disagreement)
        bonus = np.minimum(disagreement / statistics.mean, 5)
        expected = doubles(plain.reward(batch))[:, 0] + weight * bonus
        np.testing.assert_allclose(doubles(objective.reward(batch))[:, 0], expected, rtol=1e-4)


def test_novelty_without_representation_learning_still_trains_the_forward_models() -> None:
    objective = cic(representation=False, novelty=1.0)
    (group,) = objective.parameter_groups(1e-3)
    assert {id(p) for p in group["params"]} == {id(p) for p in objective.novelty.parameters()}
    assert cic(representation=False).parameter_groups(1e-3) == []
