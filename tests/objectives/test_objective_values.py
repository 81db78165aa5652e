"""Every loss and reward against NumPy in double precision, over consecutive batches where statistics or queues run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import torch
from objective_setup import ACTION, HIDDEN, Representation, build, make_batch, prepared
from torch import Tensor, nn

from cic.core.errors import UserError
from cic.core.types import Batch
from cic.learning.networks import Critic
from cic.learning.objectives import Objective, get_objective
from cic.learning.objectives.proto import sinkhorn

Doubles = npt.NDArray[np.float64]


# ---- the same in NumPy -----------------------------------------------------------------------------------------


def array(tensor: Tensor) -> Doubles:
    return tensor.detach().double().numpy().copy()


def net(module: nn.Module, x: Doubles) -> Doubles:
    if isinstance(module, nn.Sequential):
        for layer in module:
            x = net(layer, x)
        return x
    if isinstance(module, nn.Linear):
        return x @ array(module.weight).T + array(module.bias)
    if isinstance(module, nn.LayerNorm):
        centred = x - x.mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + module.eps)
        return scaled * array(module.weight) + array(module.bias)
    if isinstance(module, nn.ReLU):
        return np.maximum(x, 0)
    assert isinstance(module, nn.Tanh)
    return np.tanh(x)


def unit(x: Doubles) -> Doubles:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def log_softmax(x: Doubles) -> Doubles:
    shifted = x - x.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def nearest(points: Doubles, others: Doubles, k: int) -> Doubles:
    """(B, k), ascending, by the full table of differences."""
    table = np.sqrt(((points[:, None, :] - others[None, :, :]) ** 2).sum(axis=2))
    return np.sort(table, axis=1)[:, :k]


class Statistics:
    """Chan's merge of (mean, variance, count), started as the released code starts."""

    def __init__(self) -> None:
        self.mean, self.var, self.count = 0.0, 1.0, 1e-4

    def add(self, values: Doubles) -> None:
        n, mean, var = values.size, values.mean(), values.var(ddof=1)
        total = self.count + n
        spread = self.var * self.count + var * n + (mean - self.mean) ** 2 * self.count * n / total
        self.mean += (mean - self.mean) * n / total
        self.var, self.count = spread / total, total


def rounds(objective: Objective, count: int = 4, size: int = 48) -> Iterator[tuple[int, Batch, Representation]]:
    """Fresh batches, drifting so that running statistics have something to follow."""
    representation = Representation(objective)
    for index in range(count):
        batch = make_batch(objective.skills, size=size, seed=index)
        batch = batch._replace(obs=batch.obs * (1 + index), next_obs=batch.next_obs * (1 + index))
        yield index, representation.prepare(batch), representation


def close(actual: Tensor | float, expected: Doubles | float, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    actual = array(actual) if isinstance(actual, Tensor) else actual
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


# ---- knowledge-based -------------------------------------------------------------------------------------------


def icm_errors(objective: Objective, obs: Doubles, action: Doubles, next_obs: Doubles) -> tuple[Doubles, Doubles]:
    predicted = net(objective.forward_model, np.hstack([obs, action]))
    guessed = np.tanh(net(objective.inverse_model, np.hstack([obs, next_obs])))
    return np.linalg.norm(next_obs - predicted, axis=1), np.linalg.norm(action - guessed, axis=1)


def test_icm():
    objective = build("icm")
    for _, batch, representation in rounds(objective):
        arrays = array(batch.obs), array(batch.action), array(batch.next_obs)
        forward, inverse = icm_errors(objective, *arrays)
        close(representation.step(batch), forward.mean() + inverse.mean())
        forward, _ = icm_errors(objective, *arrays)
        close(objective.reward(batch), np.log(1 + forward)[:, None])


def ensemble(objective: Objective, batch: Batch) -> Doubles:
    inputs = np.hstack([array(batch.obs), array(batch.action)])
    predictions = []
    for member in range(objective.options.ensemble):
        hidden = inputs @ array(objective.weight_in[member]) + array(objective.bias_in[member])
        predictions.append(
            np.maximum(hidden, 0) @ array(objective.weight_out[member]) + array(objective.bias_out[member])
        )
    return np.stack(predictions)


@pytest.mark.parametrize("members", [2, 5])
def test_disagreement(members):
    objective = build("disagreement", ensemble=members)
    for _, batch, representation in rounds(objective):
        errors = np.linalg.norm(array(batch.next_obs) - ensemble(objective, batch), axis=2)
        close(representation.step(batch), errors.mean())
        close(objective.reward(batch), ensemble(objective, batch).var(axis=0, ddof=1).mean(axis=1)[:, None])


def test_disagreements_members_start_apart_as_pytorchs_layers_do():
    objective = build("disagreement", obs=61)
    for weight, bias, fan_in in [
        (objective.weight_in, objective.bias_in, 61 + ACTION),
        (objective.weight_out, objective.bias_out, HIDDEN),
    ]:
        assert not torch.equal(weight[0], weight[1])
        assert not torch.equal(bias[0], bias[1])
        reference = nn.Linear(fan_in, 4096)
        for ours, theirs in [(weight, reference.weight), (bias, reference.bias)]:
            assert ours.abs().max() <= theirs.abs().max() * 1.02
            close(ours.std(), array(theirs.std()), rtol=0.15)


def rnd_error(objective: Objective, obs: Doubles) -> Doubles:
    x = np.clip((obs - obs.mean(axis=0)) / np.sqrt(obs.var(axis=0) + 1e-5), -5, 5)
    return ((net(objective.predictor, x) - net(objective.target, x)) ** 2).mean(axis=1)


def test_rnd():
    objective, statistics = build("rnd", feature_dim=16), Statistics()
    target = [p.clone() for p in objective.target.parameters()]
    for _, batch, representation in rounds(objective):
        obs = array(batch.obs)
        expected = rnd_error(objective, obs).mean()
        close(representation.step(batch), expected)
        error = rnd_error(objective, obs)
        statistics.add(error)
        close(objective.reward(batch), error[:, None] / (np.sqrt(statistics.var) + 1e-8))
    assert all(torch.equal(p, was) for p, was in zip(objective.target.parameters(), target, strict=True))


def test_rnd_clips_outliers():
    objective = build("rnd", feature_dim=16)
    batch = make_batch(objective.skills, size=64)
    batch.obs[0] = 1e4  # √63 ≈ 7.9 standard deviations of its own batch
    batch = prepared(objective, batch)
    error = rnd_error(objective, array(batch.obs))
    statistics = Statistics()
    statistics.add(error)
    close(objective.reward(batch), error[:, None] / (np.sqrt(statistics.var) + 1e-8))


def test_rnd_embeds_the_target_once_per_update():
    objective = build("rnd")
    batch = make_batch(objective.skills)
    passes: list[int] = []
    objective.target.register_forward_hook(lambda *_: passes.append(1))
    representation = Representation(objective)
    for count in (1, 2):
        representation.update(batch)
        assert len(passes) == count


# ---- data-based ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("knn", [2, 12])
def test_apt(knn):
    objective = build("apt", feature_dim=20, knn=knn)
    for _, batch, representation in rounds(objective):
        here, there = (net(objective.trunk, array(x)) for x in (batch.obs, batch.next_obs))
        forward, inverse = icm_errors(objective, here, array(batch.action), there)
        close(representation.step(batch), forward.mean() + inverse.mean())
        features = net(objective.trunk, array(batch.obs))
        close(objective.reward(batch), np.log(1 + nearest(features, features, knn).mean(axis=1))[:, None])


def balanced(scores: Doubles, iterations: int) -> Doubles:
    """Sinkhorn as it is usually written: the whole matrix, one marginal after the other."""
    plan = np.exp(scores)
    plan /= plan.sum()
    for _ in range(iterations):
        plan /= plan.sum(axis=0, keepdims=True) * plan.shape[1]
        plan /= plan.sum(axis=1, keepdims=True) * plan.shape[0]
    return plan * len(plan)


def test_sinkhorn_marginals():
    scores = 2 * torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
    scores[:, 0] += 4  # a prototype that would take everything
    few, many = sinkhorn(scores, 3), sinkhorn(scores, 200)
    close(few, balanced(array(scores), 3))
    for plan in (few, many):
        assert (plan >= 0).all()
        close(plan.sum(dim=1), np.ones(48))
    close(many.sum(dim=0), np.full(6, 8.0), rtol=1e-3)
    assert torch.softmax(scores, dim=1).sum(dim=0).max() > 24
    assert few.sum(dim=0).max() < 12


def test_sinkhorn_survives_a_prototype_that_nothing_scores():
    scores = torch.zeros(8, 3)
    scores[:, 0] = -1e4
    plan = sinkhorn(scores, 3)
    assert plan.isfinite().all()
    close(plan.sum(dim=1), np.ones(8))


PROTO = {"prediction_dim": 8, "projection_dim": 16, "prototypes": 12, "queue_size": 40}


def test_proto_loss_target_and_prototypes():
    objective = build("proto", **PROTO)
    ema = [array(p) for p in objective.target_predictor.parameters()]
    close(objective.prototypes.norm(dim=1), np.ones(12))
    for _, batch, representation in rounds(objective):
        prototypes = array(objective.prototypes)
        online = unit(net(objective.projector, net(objective.predictor, array(batch.obs))))
        target = unit(array(batch.next_obs) @ ema[0].T + ema[1])
        assignment = balanced(target @ prototypes.T / 0.1, 3)
        expected = -(assignment * log_softmax(online @ prototypes.T / 0.1)).sum(axis=1).mean()
        close(representation.step(batch), expected)
        close(objective.prototypes.norm(dim=1), np.ones(12))
        for slow, fast in zip(ema, objective.predictor.parameters(), strict=True):
            slow += 0.05 * (array(fast) - slow)
        for ours, slow in zip(objective.target_predictor.parameters(), ema, strict=True):
            close(ours, slow)


def test_proto_reward_and_queue():
    objective = build("proto", **PROTO)
    queue = np.zeros((40, 8))
    for index, batch, representation in rounds(objective, count=7):
        representation.step(batch)
        reward = objective.reward(batch)
        embedding = unit(net(objective.predictor, array(batch.next_obs)))
        for slot in (np.arange(12) + 12 * index) % 40:  # wraps around, 40 is no multiple of 12
            queue[slot] = array(objective.queue[slot])
            assert np.abs(embedding - queue[slot]).max(axis=1).min() < 1e-5, "a candidate comes from the batch"
        close(objective.queue, queue)  # and no other slot has changed
        close(reward, nearest(embedding, array(objective.queue), 3)[:, 2:], atol=1e-4)


def test_proto_draws_candidates_by_softmax_over_the_batch():
    objective = build("proto", prediction_dim=4, prototypes=4000, queue_size=4000)
    with torch.no_grad():
        objective.prototypes.copy_(torch.tensor([2.0, 0.0, 0.0, 0.0]))  # every draw from the same distribution
    levels = prepared(objective, make_batch(objective.skills)).extras["levels"]
    objective._enqueue(torch.eye(4), levels)
    share = objective.queue.mean(dim=0)
    close(share, np.exp([2, 0, 0, 0]) / np.exp([2, 0, 0, 0]).sum(), rtol=0, atol=0.03)


# ---- competence-based ------------------------------------------------------------------------------------------


def cross_entropy(logits: Doubles, skill: Tensor) -> Doubles:
    return -(array(skill) * log_softmax(logits)).sum(axis=1)


@pytest.mark.parametrize("skills", [4, 16])
def test_diayn(skills):
    objective = build("diayn", skill_dim=skills)
    for _, batch, representation in rounds(objective):
        metrics = objective.diagnose(batch)
        logits = net(objective.classifier, array(batch.next_obs))
        close(metrics["skill/accuracy"], (logits.argmax(axis=1) == array(batch.skill).argmax(axis=1)).mean())
        close(representation.step(batch), cross_entropy(logits, batch.skill).mean())
        logits = net(objective.classifier, array(batch.next_obs))
        close(objective.reward(batch), (np.log(skills) - cross_entropy(logits, batch.skill))[:, None])


def vae(objective: Objective, joint: Doubles, noise: Doubles) -> tuple[Doubles, Doubles]:
    """Reconstructions and KL divergences."""
    hidden = net(objective.vae.encoder, joint)
    mean, log_var = net(objective.vae.mean, hidden), net(objective.vae.log_var, hidden)
    divergence = -0.5 * (1 + log_var - mean**2 - np.exp(log_var)).sum(axis=1)
    return net(objective.vae.decoder, mean + noise * np.exp(log_var / 2)), divergence


@pytest.mark.parametrize(("skill_term", "sign"), [("urlb", 1), ("paper", -1)])
def test_smm(skill_term, sign):
    objective = build("smm", skill_term=skill_term, vae_hidden=12, vae_code=7)
    for _, batch, representation in rounds(objective):
        joint = np.hstack([array(batch.obs), array(batch.skill)])
        rebuilt, divergence = vae(objective, joint, array(batch.extras["loss_noise"]))
        entropy = cross_entropy(net(objective.classifier, array(batch.obs)), batch.skill)
        expected = ((rebuilt - joint) ** 2).mean() + 0.5 * divergence.mean() + entropy.mean()
        close(representation.step(batch), expected)

        rebuilt, _ = vae(objective, joint, array(batch.extras["reward_noise"]))
        entropy = cross_entropy(net(objective.classifier, array(batch.obs)), batch.skill)
        reward = ((rebuilt - joint) ** 2).sum(axis=1) + np.log(4) + sign * entropy
        close(objective.reward(batch), reward[:, None])


def test_smm_draws_normal_noise_for_the_loss_and_again_for_the_reward():
    objective = build("smm")
    extras = prepared(objective, make_batch(objective.skills, size=200)).extras
    both = np.stack([array(extras["loss_noise"]), array(extras["reward_noise"])])
    assert both.shape == (2, 200, 128)
    assert abs(both.mean(axis=(1, 2))).max() < 4 / np.sqrt(200 * 128)
    close(both.std(axis=(1, 2)), np.ones(2), rtol=4 / np.sqrt(2 * 200 * 128))
    assert abs((both[0] * both[1]).mean()) < 4 / np.sqrt(200 * 128), "not the same noise twice"


def test_smm_learns_at_its_own_rates():
    objective = build("smm")
    rates = {id(p): group["lr"] for group in objective.parameter_groups(1e-4) for p in group["params"]}
    assert {rates[id(p)] for p in objective.vae.parameters()} == {1e-2}
    assert {rates[id(p)] for p in objective.classifier.parameters()} == {1e-3}
    assert objective.skills.every is None, "a skill per episode"


def test_aps():
    objective, statistics = build("aps"), Statistics()
    for _, batch, representation in rounds(objective):
        skill = array(batch.skill)
        features = net(objective.features, array(batch.next_obs))
        close(representation.step(batch), -(unit(features) * skill).sum(axis=1).mean())
        features = net(objective.features, array(batch.next_obs))
        distances = nearest(features, features, 12)
        statistics.add(distances)
        spread = np.maximum(distances / statistics.mean - 1e-4, 0).mean(axis=1)
        close(objective.reward(batch), (np.log(1 + spread) + (unit(features) * skill).sum(axis=1))[:, None])


def test_aps_critic_values_a_skill_by_its_product_with_successor_features():
    objective = build("aps")
    batch = make_batch(objective.skills)
    critic = objective.make_critic()
    assert isinstance(critic, Critic)
    seen = objective.policy_input(batch.obs, batch.skill)
    features = array(critic.features(seen, batch.action))
    assert features.shape == (2, 32, 10)
    close(critic(seen, batch.action, batch.skill), (features * array(batch.skill)).sum(axis=2, keepdims=True))
    assert not np.allclose(features[0], features[1])


def test_aps_regression_recovers_a_planted_skill():
    objective = build("aps")
    next_obs = make_batch(objective.skills, size=400).next_obs
    planted = make_batch(objective.skills, size=1, seed=9).skill[0]
    features = unit(net(objective.features, array(next_obs)))
    for scale, noise, tolerance in [(1.0, 0.0, 1e-4), (30.0, 0.0, 1e-4), (1.0, 0.05, 0.15)]:
        rng = np.random.default_rng(0)
        reward = scale * features @ array(planted) + noise * rng.standard_normal(400)
        found = objective.infer_skill(next_obs, torch.tensor(reward, dtype=torch.float32)[:, None])
        assert found is not None
        assert found.dtype == torch.float32
        close(found, array(planted), rtol=0, atol=tolerance)
        close(found.norm(), 1.0)


def test_aps_regression_where_features_do_not_span_their_space_gives_some_unit_skill():
    objective = build("aps")
    next_obs = make_batch(objective.skills).next_obs
    one_state = objective.infer_skill(next_obs[:1].expand(32, -1), torch.ones(32, 1))
    too_few = objective.infer_skill(next_obs[:3], torch.ones(3, 1))
    for skill in (one_state, too_few):
        assert skill is not None
        close(skill.norm(), 1.0)


def test_aps_regression_of_rewards_that_say_nothing_gives_none():
    objective = build("aps")
    assert objective.infer_skill(make_batch(objective.skills).next_obs, torch.zeros(32, 1)) is None


# ---- controls --------------------------------------------------------------------------------------------------


def test_fixed_pays_one_whatever_happens():
    objective = build("fixed")
    assert not list(objective.parameters())
    for _, batch, _ in rounds(objective):
        assert torch.equal(objective.reward(batch), torch.ones(48, 1))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("aps", {"knn": 1}),
        ("apt", {"feature_dim": 0}),
        ("diayn", {"skill_dim": 0}),
        ("disagreement", {"ensemble": 1}),
        ("proto", {"queue_size": 100}),
        ("proto", {"temperature": 0.0}),
        ("rnd", {"obs_clip": 0.0}),
        ("smm", {"vae_lr": -1.0}),
    ],
)
def test_options_out_of_range_are_the_users_mistake(name, options):
    with pytest.raises(UserError, match=next(iter(options))):
        get_objective(name).Options(**options)
