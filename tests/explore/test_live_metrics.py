"""Live metrics: against the functions of the objective, for every method."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from cic.core.types import Batch, Spaces
from cic.explore.live_metrics import REFERENCE_STEPS, LiveMetrics, ReferencePaths
from cic.learning.agent import Agent, build_agent
from cic.learning.objectives import objectives
from cic.training.settings import override, pretrain_defaults

OBS, ACTION, STEPS = 5, 2, 12


class Bare:
    """The attributes of a loaded agent that the metrics need."""

    def __init__(self, agent: Agent, nstep: int) -> None:
        self.agent, self.nstep = agent, nstep


def make(name: str, **changes: object) -> tuple[Agent, ReferencePaths]:
    config = override(pretrain_defaults("point_mass", name, "smoke"), changes)
    agent = build_agent(Spaces(OBS, ACTION), name, config.options, config.learner, config.learning)
    rng = np.random.default_rng(0)
    skills = agent.objective.skills.sample(6, rng)
    seen = rng.standard_normal((6, STEPS + 1, OBS)).astype(np.float32)
    return agent, ReferencePaths(skills, seen, rng.uniform(-1, 1, (6, STEPS, ACTION)).astype(np.float32))


@pytest.mark.parametrize("name", [name for name, _ in objectives() if name != "ddpg"])
def test_every_method_can_be_asked(name: str) -> None:
    agent, reference = make(name)
    before = copy.deepcopy(agent.objective.state_dict())
    metrics = LiveMetrics(Bare(agent, agent.objective.needs.nstep or 3), reference)  # type: ignore[arg-type]
    path, actions, skill = list(reference.observations[0]), list(reference.actions[0]), reference.skills[0]
    for steps in (1, STEPS):
        found = metrics.compute(path[: steps + 1], actions[:steps], skill)
        assert found
        assert all(np.isfinite(value) for value in found.values())
        assert found == metrics.compute(path[: steps + 1], actions[:steps], skill)  # asking changes nothing
    for key, value in agent.objective.state_dict().items():
        assert torch.equal(value, before[key])


def test_cic_has_reward_and_confidence_by_its_own_formulas() -> None:
    agent, reference = make("cic", skill_dim=4)
    metrics = LiveMetrics(Bare(agent, 3), reference)  # type: ignore[arg-type]
    path, actions, skill = list(reference.observations[1]), list(reference.actions[1]), reference.skills[1]
    found = metrics.compute(path, actions, skill)
    others = metrics._others
    obs, next_obs = (np.stack([path[-4], *others.obs.numpy()]), np.stack([path[-1], *others.next_obs.numpy()]))
    assert len(obs) == REFERENCE_STEPS + 1
    zeros = torch.zeros(len(obs), 1)
    given = [torch.from_numpy(part) for part in (obs, np.zeros((len(obs), ACTION), np.float32))]
    batch = Batch(*given, zeros, zeros, torch.from_numpy(next_obs), torch.zeros(len(obs), 4))
    assert found["intrinsic"] == pytest.approx(float(copy.deepcopy(agent.objective).reward(batch)[0]), rel=1e-5)
    # confidence: a softmax over the live skill and one step of each of the six skills
    with torch.no_grad():
        ends = [torch.from_numpy(part).float() for part in (path[-4], path[-1])]
        key = agent.objective.discriminator.prediction(torch.cat([agent.objective.state(end[None]) for end in ends], 1))
        query = agent.objective.discriminator.skill(torch.from_numpy(np.stack([skill, *reference.skills])))
    cosine = (query / query.norm(dim=1, keepdim=True) @ (key / key.norm()).T).numpy()[:, 0]
    weights = np.exp(cosine / agent.objective.options.temperature)
    assert found["confidence"] == pytest.approx(weights[0] / weights.sum(), rel=1e-4)
    assert found["chance"] == pytest.approx(1 / 7)


@pytest.mark.parametrize("name", ["diayn", "smm", "vic", "valor"])
def test_confidences_are_probabilities_of_one_hot_skills(name: str) -> None:
    """Summed over the skills that a transition could have had, they are 1."""
    agent, _ = make(name)
    objective, dim = agent.objective, agent.objective.skills.dim
    rng = np.random.default_rng(1)
    rows = torch.from_numpy(rng.standard_normal((1, OBS)).astype(np.float32)).repeat(dim, 1)
    zeros = torch.zeros(dim, 1)
    path = rows[:, None].repeat(1, max(objective.needs.path, 1), 1)
    batch = Batch(rows, torch.zeros(dim, ACTION), zeros, zeros, rows, torch.eye(dim))
    batch = batch.with_extras(first_obs=rows, skill_end=zeros, path=path)
    confidence = objective.confidence(batch)
    assert confidence is not None
    assert float(confidence.sum()) == pytest.approx(1.0, abs=1e-5)
