"""Actor and critic have the shape and the initialisation that the settings say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import actor, critic, doubles, random_batch, weights_of
from torch import nn

from cic.learning.networks import Actor, Critic, Tanh, mlp

HIDDEN = 12


def build(cls: type[nn.Module], *sizes: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return cls(*sizes)


def assert_orthogonal(weight: torch.Tensor) -> None:
    rows = weight if weight.shape[0] <= weight.shape[1] else weight.T
    np.testing.assert_allclose(doubles(rows @ rows.T), np.eye(len(rows)), atol=1e-5)


def test_mlp_has_relu_between_its_layers_and_none_after_the_last() -> None:
    assert [type(layer) for layer in mlp(3, 4, 5, 6)] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]


@torch.no_grad()
def shake(network: nn.Module) -> None:
    """Biases start at 0, where a forgotten one would not be missed."""
    noise = torch.Generator().manual_seed(2)
    for parameter in network.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape, generator=noise))


@pytest.mark.parametrize("hidden", [HIDDEN, 512])
def test_actor_is_its_definition(hidden: int) -> None:
    network = build(Actor, 5, 2, hidden)
    shake(network)
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    expected = actor({f"actor.{name}": value for name, value in weights_of(network).items()}, "actor", doubles(x))
    np.testing.assert_allclose(doubles(network(x)), expected, rtol=2e-6, atol=1e-6)


def test_tanh_is_tanh_with_its_gradient() -> None:
    x = torch.linspace(-20, 20, 4_001)
    np.testing.assert_allclose(doubles(Tanh()(x)), np.tanh(doubles(x)), atol=3e-7)
    few = torch.linspace(-3, 3, 13, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Tanh(), few)


def test_critic_is_two_heads_on_one_trunk() -> None:
    network = build(Critic, 5, 2, HIDDEN)
    shake(network)
    noise = torch.Generator().manual_seed(1)
    x, action = torch.randn(7, 5, generator=noise), torch.randn(7, 2, generator=noise)
    weights = {f"critic.{name}": value for name, value in weights_of(network).items()}
    expected = critic(weights, "critic", doubles(x), doubles(action))
    q = network(x, action, torch.zeros(7, 0))
    assert q.shape == (2, 7, 1)
    np.testing.assert_allclose(doubles(q), expected, atol=1e-6)
    assert not np.allclose(expected[0], expected[1]), "the heads start apart"


def test_successor_features_have_an_output_per_feature() -> None:
    network = build(Critic, 5, 2, HIDDEN, 10)
    assert network.features(torch.zeros(7, 5), torch.zeros(7, 2)).shape == (2, 7, 10)


@pytest.mark.parametrize("bonus", [0.0, 0.7])
def test_the_critics_rule_is_the_sum_of_both_heads_squared_errors(bonus: float) -> None:
    network, target = build(Critic, 5, 2, HIDDEN), build(Critic, 5, 2, HIDDEN)
    shake(network)
    batch = random_batch(9, 5, 2, 0)
    next_action = torch.rand(9, 2, generator=torch.Generator().manual_seed(3))
    loss, metrics = network.td_loss(target, batch, next_action, torch.full((9, 1), bonus) if bonus else 0.0)
    weights = {f"critic.{name}": value for name, value in weights_of(network).items()}
    weights |= {f"target.{name}": value for name, value in weights_of(target).items()}
    next_q = critic(weights, "target", doubles(batch.next_obs), doubles(next_action)).min(axis=0)
    goal = doubles(batch.reward) + doubles(batch.discount) * (next_q + bonus)
    q = critic(weights, "critic", doubles(batch.obs), doubles(batch.action))
    assert float(loss.detach()) == pytest.approx(((q[0] - goal) ** 2).mean() + ((q[1] - goal) ** 2).mean(), rel=1e-5)
    assert float(metrics["critic/target"]) == pytest.approx(goal.mean(), rel=1e-5)
    assert float(metrics["critic/q"]) == pytest.approx(q.mean(), rel=1e-5)


@pytest.mark.parametrize("out", [1, 10])
def test_every_layer_is_orthogonal_with_zero_biases(out: int) -> None:
    network, policy = build(Critic, 5, 2, HIDDEN, out), build(Actor, 5, 2, HIDDEN)
    assert isinstance(network, Critic)
    assert isinstance(policy, Actor)
    assert_orthogonal(network.trunk[0].weight)
    for head in range(2):
        assert_orthogonal(network.hidden.weight.chunk(2)[head])
        assert_orthogonal(network.heads[head].weight)
    for layer in (policy.trunk[0], policy.head[0], policy.head[2]):
        assert_orthogonal(layer.weight)
    for module in (network, policy):
        for name, value in module.named_parameters():
            if name.endswith("bias"):
                assert (value == 0).all(), name
