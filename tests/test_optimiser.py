"""Our Adam against torch's and against the formula."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from helpers import NumpyAdam
from torch import Tensor, nn

from cic.learning.optimiser import Adam


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


def loss(net: nn.Module, step: int) -> Tensor:
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(step))
    return net(x).square().mean()


def test_ten_steps_equal_torchs_to_the_bit() -> None:
    ours, theirs = network(), network()
    adam = Adam([{"params": ours[0].parameters(), "lr": 1e-2}, {"params": ours[2].parameters(), "lr": 1e-3}])
    reference = torch.optim.Adam(
        [{"params": theirs[0].parameters(), "lr": 1e-2}, {"params": theirs[2].parameters(), "lr": 1e-3}], fused=True
    )
    for step in range(10):
        adam.step(adam.gradients(loss(ours, step)))
        reference.zero_grad()
        loss(theirs, step).backward()
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_the_formula() -> None:
    weight, formula = torch.tensor([[1.0, -2.0]], requires_grad=True), NumpyAdam(0.1)
    adam = Adam([{"params": [weight], "lr": 0.1}])
    expected = {"w": weight.detach().double().numpy().copy()}
    for step in range(5):
        adam.step(adam.gradients((weight**2 * (step + 1)).sum()))
        formula.step(expected, {"w": 2 * (step + 1) * expected["w"]})
        np.testing.assert_allclose(weight.detach().numpy(), expected["w"], rtol=1e-5)


def test_a_parameter_without_gradient_stays_and_keeps_its_own_count() -> None:
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    adam = Adam([{"params": [a, b], "lr": 0.1}])
    adam.step(adam.gradients(a.sum()))
    assert torch.equal(b, torch.ones(2))
    adam.step(adam.gradients(a.sum() + b.sum()))
    state = adam.state()
    assert (float(state["0.step"]), float(state["1.step"])) == (2, 1)
    assert torch.allclose(b, torch.full((2,), 0.9))  # a first step has the size of the rate


def test_a_gradient_in_another_layout_is_read_in_its_own_order() -> None:
    weight = torch.zeros(2, 3, requires_grad=True)
    slope = torch.arange(1.0, 7.0).reshape(3, 2)
    adam = Adam([{"params": [weight], "lr": 0.1}])
    (gradient,) = adam.gradients((weight.T * slope).sum())
    assert gradient is not None
    adam.step((slope.T,))
    assert not slope.T.is_contiguous()
    assert torch.allclose(adam.state()["0.exp_avg"], 0.1 * slope.T)


@pytest.mark.parametrize("done", [0, 3])
def test_restored_state_continues_to_the_bit(done: int) -> None:
    first = network()
    adam = Adam([{"params": first.parameters(), "lr": 1e-2}])
    for step in range(done):
        adam.step(adam.gradients(loss(first, step)))
    second = copy.deepcopy(first)
    again = Adam([{"params": second.parameters(), "lr": 1e-2}])
    again.restore({name: value.clone() for name, value in adam.state().items()})
    for net, optimiser in ((first, adam), (second, again)):
        optimiser.step(optimiser.gradients(loss(net, done)))
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
