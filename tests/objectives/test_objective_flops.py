"""No baseline multiplies matrices that its update does not need: the products done, against a count by hand."""

from __future__ import annotations

import itertools

import pytest
from objective_setup import ACTION, HIDDEN, Learner, build, make_batch
from torch.utils.flop_counter import FlopCounterMode

OBS, BATCH = 24, 64


def product(rows: int, inner: int, columns: int) -> int:
    return 2 * rows * inner * columns


def forward(*sizes: int) -> int:
    return sum(product(BATCH, fan_in, fan_out) for fan_in, fan_out in itertools.pairwise(sizes))


def train(*sizes: int, into_input: bool = False) -> int:
    """Forward, gradients of the weights, gradients of the inputs; those of the first layer's only if asked for."""
    return 3 * forward(*sizes) - (0 if into_input else forward(*sizes[:2]))


def needed(name: str) -> int:
    dynamics = (OBS + ACTION, HIDDEN, OBS)
    if name == "icm":
        return train(*dynamics) + train(2 * OBS, HIDDEN, ACTION) + forward(*dynamics)
    if name == "disagreement":
        return 5 * (train(*dynamics) + forward(*dynamics))
    if name == "rnd":  # the target once, for loss and reward
        sizes = (OBS, HIDDEN, HIDDEN, 512)
        return train(*sizes) + 2 * forward(*sizes)
    if name == "apt":  # the trunk under s and under s', and for the reward
        models = train(512 + ACTION, HIDDEN, 512, into_input=True) + train(1024, HIDDEN, ACTION, into_input=True)
        return 2 * train(OBS, 512) + models + forward(OBS, 512) + product(BATCH, 512, BATCH)
    if name == "proto":
        online = train(OBS, 128) + train(128, 512, 128, into_input=True) + train(128, 512, into_input=True)
        sinkhorn = 3 * product(1, BATCH, 512)  # vectors times the scores; those from the other side are not counted
        return online + 2 * forward(OBS, 128, 512) + sinkhorn + product(BATCH, 128, 2048)
    if name == "smm":
        encoder, decoder, classifier = (OBS + 4, 150, 150), (128, 150, 150, OBS + 4), (OBS, HIDDEN, HIDDEN, 4)
        codes = train(150, 256, into_input=True)
        learning = train(*encoder) + codes + train(*decoder, into_input=True) + train(*classifier)
        return learning + forward(*encoder, 256) + forward(*decoder) + forward(*classifier)
    if name == "diayn":
        sizes = (OBS, HIDDEN, HIDDEN, 16)
        return train(*sizes) + forward(*sizes)
    if name == "aps":
        sizes = (OBS, HIDDEN, HIDDEN, 10)
        return train(*sizes) + forward(*sizes) + product(BATCH, 10, BATCH)
    assert name == "fixed"
    return 0


@pytest.mark.parametrize("name", ["icm", "disagreement", "rnd", "apt", "proto", "smm", "diayn", "aps", "fixed"])
def test_only_needed_products(name):
    objective = build(name, OBS)
    learner, batch = Learner(objective), make_batch(objective.skill, OBS, BATCH)
    learner.update(batch)
    with FlopCounterMode(display=False) as counter:
        learner.update(batch)
    assert counter.get_total_flops() == needed(name)
