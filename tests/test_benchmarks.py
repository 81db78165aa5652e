"""Our update is the textbook one: same weights, same batches, same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.__main__ import main
from benchmarks.floor import flops, make_floor, record
from benchmarks.images import make_image_floor
from benchmarks.textbook import Textbook, TwoHeads
from benchmarks.updates import filled_replay
from cic.core.types import Spaces
from cic.learning.agent import Agent, build_agent
from cic.learning.learners.ddpg import DDPGConfig
from cic.learning.objectives.cic import CICOptions

SPACES = Spaces(obs=24, action=6)


def make_agent(hidden: int, batch: int) -> Agent:
    return build_agent(SPACES, "cic", CICOptions(), "ddpg", DDPGConfig(hidden=hidden, batch=batch), seed=3)


@pytest.mark.slow
def test_200_updates_equal_the_textbook_version() -> None:
    agent = make_agent(hidden=64, batch=64)
    textbook = Textbook(agent)
    replay, rng = filled_replay(SPACES, agent.objective.skills.dim, steps=2_000), np.random.default_rng(0)
    for _ in range(200):
        batch = replay.sample(64, rng)
        agent.update(batch, intrinsic=True)
        textbook.update(batch)
    pairs = {
        "actor": (agent.learner.actor, textbook.actor),
        "state": (agent.objective.state, textbook.state_net),
        "skill": (agent.objective.discriminator.skill, textbook.skill_net),
        "prediction": (agent.objective.discriminator.prediction, textbook.pred_net),
        "critic": (TwoHeads(agent.learner.critic), textbook.critic),
        "target": (TwoHeads(agent.learner.target), textbook.target),
    }
    for name, (ours, theirs) in pairs.items():
        for left, right in zip(ours.parameters(), theirs.parameters(), strict=True):
            error = torch.linalg.norm(left - right) / torch.linalg.norm(right).clamp(min=1e-3)
            assert error < 1e-4, (name, float(error))


def test_the_floor_repeats_the_products_of_a_call() -> None:
    left, right = torch.randn(3, 5, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    products = record(lambda: (left @ right).sum().backward())
    assert flops(products) == 3 * 2 * 3 * 5 * 7, "forward, and a gradient for each operand"
    floor = make_floor(products)
    with FlopCounterMode(display=False) as counter:
        floor()
    assert counter.get_total_flops() == flops(products)


def test_the_floor_of_images_repeats_the_convolutions_of_a_call() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 2))
    images = torch.randn(5, 3, 8, 8)

    def call() -> None:
        net(images).sum().backward()

    with FlopCounterMode(display=False) as counter:
        call()
    floor = make_image_floor(call)
    with FlopCounterMode(display=False) as repeated:
        floor()
    assert repeated.get_total_flops() == counter.get_total_flops() > 0


def test_help_names_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "environments, images, loop, objectives, sweeps, updates" in capsys.readouterr().out


def test_a_benchmark_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonesuch"]) == 2
    assert (
        "no benchmark 'nonesuch'; there are: environments, images, loop, objectives, sweeps, updates"
        in capsys.readouterr().err
    )
