"""Gradient steps: equal to torch's Adam on the gradients of a loss, bit-exactly, and their state in checkpoints."""

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
from cic.learning.optim import Adam, GradientStep


def network() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


def loss(net: nn.Module, step: int) -> Tensor:
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(step))
    return net(x).square().mean()


def step_of(net: nn.Module, *optimisers: Adam) -> GradientStep:
    def with_metrics(step: int) -> tuple[Tensor, Metrics]:
        found = loss(net, step)
        return found, {"test/loss": found.detach()}

    return GradientStep(with_metrics, *optimisers)


def equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_ten_steps_equal_a_loop_written_out() -> None:
    """Also when the weights have two rates, and when they belong to two optimisers."""
    ours, split, theirs = network(), network(), network()

    def groups(net: nn.Sequential) -> list[dict[str, object]]:
        return [{"params": net[0].parameters(), "lr": 1e-2}, {"params": net[2].parameters(), "lr": 1e-3}]

    reference = torch.optim.Adam(groups(theirs), fused=True)
    steps = [step_of(ours, Adam(groups(ours))), step_of(split, *(Adam([part]) for part in groups(split)))]
    for step in range(10):
        expected = loss(theirs, step)
        reference.zero_grad()
        expected.backward()
        reference.step()
        for take_step in steps:
            assert torch.equal(take_step(step)["test/loss"], expected.detach())
    assert equal(ours, theirs)
    assert equal(split, theirs)


def test_the_formula() -> None:
    weight, formula = torch.tensor([[1.0, -2.0]], requires_grad=True), NumpyAdam(0.1)
    take_step = GradientStep(lambda step: ((weight**2 * (step + 1)).sum(), {}), Adam([{"params": [weight], "lr": 0.1}]))
    expected = {"w": weight.detach().double().numpy().copy()}
    for step in range(5):
        take_step(step)
        formula.step(expected, {"w": 2 * (step + 1) * expected["w"]})
        np.testing.assert_allclose(weight.detach().numpy(), expected["w"], rtol=1e-5)


def test_a_weight_without_gradient_stays_and_keeps_its_own_count() -> None:
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    optimiser = Adam([{"params": [a, b], "lr": 0.1}])
    take_step = GradientStep(lambda both: (a.sum() + (b.sum() if both else 0), {}), optimiser)
    take_step(False)
    assert torch.equal(b, torch.ones(2))
    take_step(True)
    take_step(False)
    state = optimiser.state()
    assert (float(state["0.step"]), float(state["1.step"])) == (3, 1)
    assert torch.allclose(b, torch.full((2,), 0.9))  # a first step has the size of the rate


def test_a_gradient_in_another_layout_is_read_in_its_own_order() -> None:
    weight = torch.zeros(2, 3, requires_grad=True)
    slope = torch.arange(1.0, 7.0).reshape(3, 2)
    optimiser = Adam([{"params": [weight], "lr": 0.1}])
    (gradient,) = torch.autograd.grad((weight.T * slope).sum(), weight)
    assert not gradient.is_contiguous()
    GradientStep(lambda: ((weight.T * slope).sum(), {}), optimiser)()
    assert torch.allclose(optimiser.state()["0.exp_avg"], 0.1 * slope.T)


def test_other_weights_get_no_gradient() -> None:
    net = network()
    take_step = step_of(net, Adam([{"params": net[0].parameters(), "lr": 0.1}]))
    last = copy.deepcopy(net[2])
    take_step(0)
    assert equal(net[2], last)
    assert all(weight.grad is None for weight in net[2].parameters())


@pytest.mark.parametrize("done", [0, 3])
def test_restored_state_continues_bit_exactly(done: int) -> None:
    first = network()
    optimiser = Adam([{"params": first.parameters(), "lr": 1e-2}])
    take_step = step_of(first, optimiser)
    for step in range(done):
        take_step(step)
    second = copy.deepcopy(first)
    again = Adam([{"params": second.parameters(), "lr": 1e-2}])
    step_of(second, again)(99)  # what was there before must not matter
    second.load_state_dict(first.state_dict())
    again.restore({name: value.clone() for name, value in optimiser.state().items()})
    for net, of in ((first, optimiser), (second, again)):
        step_of(net, of)(done)
    assert equal(first, second)


def test_a_restored_state_is_on_the_device_of_its_weight() -> None:
    """The counter too: torch's fused kernel wants it on the weight's device."""
    net = network()
    optimiser = Adam([{"params": net.parameters(), "lr": 1e-2}])
    step_of(net, optimiser)(0)
    elsewhere = Adam([{"params": network().to("meta").parameters(), "lr": 1e-2}])
    elsewhere.restore(optimiser.state())
    restored = elsewhere.state()
    assert {name.partition(".")[2] for name in restored} == {"step", "exp_avg", "exp_avg_sq"}
    assert {value.device.type for value in restored.values()} == {"meta"}


def test_a_restored_state_is_a_copy() -> None:
    first, second = network(), network()
    one, other = (Adam([{"params": net.parameters(), "lr": 1e-2}]) for net in (first, second))
    step_of(first, one)(0)
    kept = {name: value.clone() for name, value in one.state().items()}
    other.restore(one.state())
    step_of(second, other)(1)
    assert all(torch.equal(value, kept[name]) for name, value in one.state().items())


@given(st.lists(st.booleans(), min_size=3, max_size=6))
@settings(steady, max_examples=20)
def test_asking_for_the_state_changes_nothing(asks: list[bool]) -> None:
    first, second = network(), network()
    one, other = (Adam([{"params": net.parameters(), "lr": 1e-2}]) for net in (first, second))
    for step, ask in enumerate(asks):
        if ask:
            one.state()
        step_of(first, one)(step)
        step_of(second, other)(step)
    assert equal(first, second)
