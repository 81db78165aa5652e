"""Descent: torch's Adam on the gradients of a loss, to the bit, and the state that a checkpoint carries."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from helpers import NumpyAdam, steady
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cic.core.types import Metrics
from cic.learning.optim import Adam, Descent


def network() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


def loss(net: nn.Module, step: int) -> Tensor:
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(step))
    return net(x).square().mean()


def descent_of(net: nn.Module, *optimisers: Adam) -> Descent:
    def with_metrics(step: int) -> tuple[Tensor, Metrics]:
        found = loss(net, step)
        return found, {"test/loss": found.detach()}

    return Descent(with_metrics, *optimisers)


def equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_ten_steps_equal_a_loop_written_out() -> None:
    """Also when the weights have two rates, and when they belong to two optimisers."""
    ours, split, theirs = network(), network(), network()

    def groups(net: nn.Sequential) -> list[dict[str, object]]:
        return [{"params": net[0].parameters(), "lr": 1e-2}, {"params": net[2].parameters(), "lr": 1e-3}]

    reference = torch.optim.Adam(groups(theirs), fused=True)
    descents = [descent_of(ours, Adam(groups(ours))), descent_of(split, *(Adam([part]) for part in groups(split)))]
    for step in range(10):
        expected = loss(theirs, step)
        reference.zero_grad()
        expected.backward()
        reference.step()
        for descent in descents:
            assert torch.equal(descent.step(step)["test/loss"], expected.detach())
    assert equal(ours, theirs)
    assert equal(split, theirs)


def test_the_formula() -> None:
    weight, formula = torch.tensor([[1.0, -2.0]], requires_grad=True), NumpyAdam(0.1)
    descent = Descent(lambda step: ((weight**2 * (step + 1)).sum(), {}), Adam([{"params": [weight], "lr": 0.1}]))
    expected = {"w": weight.detach().double().numpy().copy()}
    for step in range(5):
        descent.step(step)
        formula.step(expected, {"w": 2 * (step + 1) * expected["w"]})
        np.testing.assert_allclose(weight.detach().numpy(), expected["w"], rtol=1e-5)


def test_a_weight_without_gradient_stays_and_keeps_its_own_count() -> None:
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    optimiser = Adam([{"params": [a, b], "lr": 0.1}])
    descent = Descent(lambda both: (a.sum() + (b.sum() if both else 0), {}), optimiser)
    descent.step(False)
    assert torch.equal(b, torch.ones(2))
    descent.step(True)
    descent.step(False)
    state = optimiser.state()
    assert (float(state["0.step"]), float(state["1.step"])) == (3, 1)
    assert torch.allclose(b, torch.full((2,), 0.9))  # a first step has the size of the rate


def test_a_gradient_in_another_layout_is_read_in_its_own_order() -> None:
    weight = torch.zeros(2, 3, requires_grad=True)
    slope = torch.arange(1.0, 7.0).reshape(3, 2)
    optimiser = Adam([{"params": [weight], "lr": 0.1}])
    (gradient,) = torch.autograd.grad((weight.T * slope).sum(), weight)
    assert not gradient.is_contiguous()
    Descent(lambda: ((weight.T * slope).sum(), {}), optimiser).step()
    assert torch.allclose(optimiser.state()["0.exp_avg"], 0.1 * slope.T)


def test_other_weights_get_no_gradient() -> None:
    net = network()
    descent = descent_of(net, Adam([{"params": net[0].parameters(), "lr": 0.1}]))
    last = copy.deepcopy(net[2])
    descent.step(0)
    assert equal(net[2], last)
    assert all(weight.grad is None for weight in net[2].parameters())


@pytest.mark.parametrize("done", [0, 3])
def test_restored_state_continues_to_the_bit(done: int) -> None:
    first = network()
    optimiser = Adam([{"params": first.parameters(), "lr": 1e-2}])
    descent = descent_of(first, optimiser)
    for step in range(done):
        descent.step(step)
    second = copy.deepcopy(first)
    again = Adam([{"params": second.parameters(), "lr": 1e-2}])
    descent_of(second, again).step(99)  # what was there before must not matter
    second.load_state_dict(first.state_dict())
    again.restore({name: value.clone() for name, value in optimiser.state().items()})
    for net, of in ((first, optimiser), (second, again)):
        descent_of(net, of).step(done)
    assert equal(first, second)


def test_a_restored_state_lives_where_its_weight_does() -> None:
    """The counter too: torch's fused kernel wants it on the weight's device."""
    net = network()
    optimiser = Adam([{"params": net.parameters(), "lr": 1e-2}])
    descent_of(net, optimiser).step(0)
    elsewhere = Adam([{"params": network().to("meta").parameters(), "lr": 1e-2}])
    elsewhere.restore(optimiser.state())
    restored = elsewhere.state()
    assert {name.partition(".")[2] for name in restored} == {"step", "exp_avg", "exp_avg_sq"}
    assert {value.device.type for value in restored.values()} == {"meta"}


def test_a_restored_state_is_a_copy() -> None:
    first, second = network(), network()
    one, other = (Adam([{"params": net.parameters(), "lr": 1e-2}]) for net in (first, second))
    descent_of(first, one).step(0)
    kept = {name: value.clone() for name, value in one.state().items()}
    other.restore(one.state())
    descent_of(second, other).step(1)
    assert all(torch.equal(value, kept[name]) for name, value in one.state().items())


@given(st.lists(st.booleans(), min_size=3, max_size=6))
@settings(steady, max_examples=20)
def test_asking_for_the_state_changes_nothing(asks: list[bool]) -> None:
    first, second = network(), network()
    one, other = (Adam([{"params": net.parameters(), "lr": 1e-2}]) for net in (first, second))
    for step, ask in enumerate(asks):
        if ask:
            one.state()
        descent_of(first, one).step(step)
        descent_of(second, other).step(step)
    assert equal(first, second)
