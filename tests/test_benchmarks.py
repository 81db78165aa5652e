"""The optimised update is the textbook one: same weights, same batches, same numbers."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from benchmarks.floor import flops, record
from benchmarks.textbook import Textbook
from benchmarks.updates import filled_replay
from cic.core.types import Spaces
from cic.learning.agent import Agent, AgentConfig
from cic.learning.objectives.cic import CICOptions

SPACES = Spaces(obs=24, action=6)


def make_agent(hidden: int, batch: int) -> Agent:
    return Agent(SPACES, "cic", CICOptions(), AgentConfig(hidden=hidden, batch=batch), seed=3)


def test_200_updates_equal_the_textbook_version() -> None:
    agent = make_agent(hidden=64, batch=64)
    textbook = Textbook(agent)
    replay, rng = filled_replay(SPACES, agent.objective.skill.dim, steps=2_000), np.random.default_rng(0)
    for _ in range(200):
        batch = replay.sample(64, rng)
        agent.update(batch)
        textbook.update(batch)
    pairs = {
        "actor": (agent.actor, textbook.actor),
        "state": (agent.objective.state, textbook.state_net),
        "skill": (agent.objective.discriminator.skill, textbook.skill_net),
        "prediction": (agent.objective.discriminator.prediction, textbook.pred_net),
        "trunk": (agent.critic.trunk, textbook.critic.trunk),
        "target": (agent.target.trunk, textbook.target.trunk),
    }
    for name, (ours, theirs) in pairs.items():
        for left, right in zip(ours.parameters(), theirs.parameters(), strict=True):
            error = torch.linalg.norm(left - right) / torch.linalg.norm(right).clamp(min=1e-3)
            assert error < 1e-4, (name, float(error))
    heads = torch.cat([textbook.critic.q1[0].weight, textbook.critic.q2[0].weight])
    assert torch.linalg.norm(agent.critic.heads.weight - heads) / torch.linalg.norm(heads) < 1e-4


def needed_flops(obs: int, action: int, skill: int, hidden: int, batch: int) -> int:
    """Counted by hand: per layer 2·rows·in·out, forward once, and again for each gradient that is needed."""

    def layer(fan_in: int, fan_out: int, rows: int, times: int) -> int:
        return 2 * rows * fan_in * fan_out * times

    def mlp(sizes: tuple[int, ...], rows: int, first: int, rest: int) -> int:
        pairs = list(itertools.pairwise(sizes))
        return sum(layer(a, b, rows, first if i == 0 else rest) for i, (a, b) in enumerate(pairs))

    state = mlp((obs, hidden, hidden, skill), 2 * batch, 2, 3)  # the input needs no gradient
    query = mlp((skill, hidden, hidden, skill), batch, 2, 3)
    key = mlp((2 * skill, hidden, hidden, skill), batch, 3, 3)
    contrast = layer(skill, batch, batch, 3)
    reward = mlp((obs, hidden, hidden, skill), batch, 1, 1) + layer(skill, batch, batch, 1)
    policy, q_input = obs + skill, obs + skill + action
    actor = mlp((policy, hidden, hidden, action), batch, 1 + 2, 1 + 3)  # next action; the actor's own step
    trunk = layer(q_input, hidden, batch, 1 + 2 + 1) + layer(action, hidden, batch, 1)  # target; critic; to the action
    heads = layer(hidden, 2 * hidden, batch, 1 + 3 + 2) + layer(2 * hidden, 2, batch, 1 + 3 + 2)
    return state + query + key + contrast + reward + actor + trunk + heads


def test_an_update_does_no_needless_matrix_product() -> None:
    agent = make_agent(hidden=32, batch=48)
    batch = filled_replay(SPACES, 64, steps=500).sample(48, np.random.default_rng(0))
    done = flops(record(lambda: agent.update(batch)))
    assert done == needed_flops(24, 6, 64, hidden=32, batch=48)
