"""What every objective keeps with every learner. A new file in either folder is tested here with no new test code."""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
from inspect import signature

import numpy as np
import pytest
import torch
from agent_setup import restored, same
from helpers import documented_fields, steady
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.objective_setup import make_batch

from cic.api import finetune, offline, pretrain, resume
from cic.commandline.shared import TrainingArguments
from cic.core.errors import UserError
from cic.core.setting_names import RUN_SETTINGS
from cic.core.types import Batch, Spaces
from cic.learning.agent import Agent, build_agent
from cic.learning.encoders import EncoderConfig
from cic.learning.learners import Learner, LearnerConfig, base, get_learner, learners, register_learner
from cic.learning.learners.ddpg import DDPG
from cic.learning.objectives import Objective, get_objective, objectives, register
from cic.learning.objectives import base as objective_base
from cic.training.offline_settings import OfflineConfig
from cic.training.settings import FinetuneConfig, PretrainConfig, SearchConfig

OBS, ACTION, BATCH = 5, 5, 8
CONTINUOUS, DISCRETE = Spaces(OBS, ACTION), Spaces(OBS, ACTION, choices=(3, 2))
PAPER = re.compile(r"[A-Z]\w+ (et al\. |& [A-Z]\w+ )?(19|20)\d\d")
OBJECTIVES, LEARNERS = [name for name, _ in objectives()], list(learners())


def build(objective: str, learner: str, seed: int = 0) -> Agent:
    cls = get_objective(objective)
    options = cls.Options(**cls.scales.get("smoke", {}))
    config = get_learner(learner).Config(hidden=8, batch=BATCH, lr=1e-3)
    spaces = DISCRETE if get_learner(learner).discrete else CONTINUOUS
    return build_agent(spaces, objective, options, learner, config, seed=seed)


def experience(agent: Agent, count: int) -> list[Batch]:
    return [make_batch(agent.objective.skills, OBS, BATCH, seed=i, spaces=agent.spaces) for i in range(count)]


def moved(before: dict[str, torch.Tensor], agent: Agent, prefix: str) -> bool:
    now = agent.state_dict()
    return any(not torch.equal(now[name], value) for name, value in before.items() if name.startswith(prefix))


def assert_trains_and_continues(objective: str, learner: str) -> None:
    agent, twin, other = build(objective, learner), build(objective, learner), build(objective, learner, seed=1)
    before = {name: value.clone() for name, value in agent.state_dict().items()}
    todo = experience(agent, 4)
    for batch in todo[:3]:  # an odd number: TD3 must remember where it was
        metrics = agent.update(batch, intrinsic=True)
        assert all(bool(value.isfinite()) and value.numel() == 1 for value in metrics.values()), metrics
        twin.update(batch, intrinsic=True)
    assert same(agent, twin), "same seed, same bits"
    parts = ["learner.actor.", "learner.critic.", "learner.target."]
    for part in parts + (["objective."] if agent.objective.parameter_groups(1e-3) else []):
        assert moved(before, agent, part), part

    restored(agent, other)
    obs, skill = todo[3].obs.numpy(), todo[3].skill.numpy()
    for one in (agent, other):
        one.update(todo[3], intrinsic=True)
        one.update(todo[0], intrinsic=False)
    assert same(agent, other), "a restored agent continues to the bit"
    for explore in (False, True):
        action = agent.act(obs, skill, explore=explore)
        assert (action == other.act(obs, skill, explore=explore)).all()
        assert action.shape == (BATCH, ACTION)
        if agent.spaces.choices:
            assert (np.sort(action, axis=1) == [0, 0, 0, 1, 1]).all()
            assert (action[:, :3].sum(axis=1) == 1).all()
        else:
            assert (abs(action) < 1).all()


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_pair_trains_and_continues(objective: str, learner: str) -> None:
    assert_trains_and_continues(objective, learner)


@given(
    st.sampled_from(list(itertools.product(OBJECTIVES, LEARNERS))), st.lists(st.integers(0, 3), min_size=1, max_size=4)
)
@settings(steady, max_examples=30)
def test_asking_for_the_state_changes_nothing(pair: tuple[str, str], moments: list[int]) -> None:
    asked, left_alone = build(*pair), build(*pair)
    for moment, batch in enumerate(experience(asked, 4)):
        for _ in range(moments.count(moment)):
            asked.state_dict()
            asked.optimiser_state()
        for agent in (asked, left_alone):
            agent.update(batch, intrinsic=moment % 2 == 0)
    assert same(asked, left_alone)


# ---- flags -----------------------------------------------------------------------------------------------------


@pytest.fixture
def _own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (base, objective_base):
        monkeypatch.setattr(module, "_REGISTRY", dict(module._REGISTRY))


def names(cls: type) -> set[str]:
    return {field.name for field in dataclasses.fields(cls)}


def test_the_reserved_names_are_those_of_settings_and_arguments() -> None:
    configs = (PretrainConfig, FinetuneConfig, OfflineConfig, SearchConfig, EncoderConfig, TrainingArguments)
    functions = (pretrain, finetune, offline, resume)
    settings = set().union(*map(names, configs), *(set(signature(f).parameters) for f in functions))
    assert (settings | {"runs", "scratch"}) - {"settings"} == RUN_SETTINGS


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_options_of_objective_and_learner_have_different_names(objective: str, learner: str) -> None:
    assert not names(get_objective(objective).Options) & names(get_learner(learner).Config)


@pytest.mark.parametrize("name", ["steps", "domain", "task", "search_steps", "out"])
@pytest.mark.usefixtures("_own_registries")
def test_an_option_named_like_a_setting_of_the_run_is_refused(name: str) -> None:
    options = dataclasses.make_dataclass("Own", [("width", int, 3), (name, int, 3)], frozen=True)
    with pytest.raises(UserError, match=f'^objective "mine" cannot be registered: its option "{name}".*rename'):
        register("mine")(type("Mine", (Objective,), {"Options": options}))
    config = dataclasses.make_dataclass("Config", [(name, int, 3)], bases=(LearnerConfig,), frozen=True)
    with pytest.raises(UserError, match=f'^learner "mine" cannot be registered: its option "{name}".*rename'):
        register_learner("mine")(type("Mine", (DDPG,), {"Config": config}))
    assert "mine" not in dict(objectives())
    assert "mine" not in learners()


def test_an_option_of_both_objective_and_learner_is_refused() -> None:
    options = dataclasses.make_dataclass("Own", [("noise", float, 0.1)], frozen=True)
    with pytest.raises(UserError, match='objective "fixed" and learner "ddpg" both have an option "noise": rename'):
        build_agent(CONTINUOUS, "fixed", options(), "ddpg", get_learner("ddpg").Config())


# ---- learners --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_learners_settings_are_documented_and_it_names_its_paper(learner: str) -> None:
    cls = get_learner(learner)
    own = names(cls.Config) - names(base.LearnerConfig)
    assert documented_fields(cls.Config) == own
    assert documented_fields(base.LearnerConfig) == names(base.LearnerConfig)
    assert PAPER.search(cls.__doc__ or "")
    assert PAPER.search(sys.modules[cls.__module__].__doc__ or "")


@pytest.mark.parametrize("learner", LEARNERS)
def test_losses_share_no_weight_and_leave_targets_alone(learner: str) -> None:
    built: Learner = build("ddpg", learner).learner
    moved_by = [weight for _, weights in built.losses().values() for weight in weights]
    assert len({id(weight) for weight in moved_by}) == len(moved_by)
    assert "critic" in built.losses()
    assert "actor" in built.losses() or learner == "dqn"  # whose actor is a copy of the critic
    assert not {id(weight) for weight in built.target.parameters()} & {id(weight) for weight in moved_by}
    assert {id(w) for w in built.parameters() if w.requires_grad} == {id(w) for w in moved_by}


@pytest.mark.usefixtures("_own_registries")
def test_a_learner_that_is_registered_elsewhere_is_one_of_them() -> None:
    @register_learner("cautious")
    class Cautious(DDPG):
        """DDPG that halves its actions (Author et al. 2020)."""

        def act(self, x: torch.Tensor, explore: bool, generator: torch.Generator) -> torch.Tensor:
            return super().act(x, explore, generator) / 2

    assert learners()["cautious"] is Cautious
    for objective in ("cic", "aps"):
        assert_trains_and_continues(objective, "cautious")
    obs = np.ones((2, OBS), np.float32)
    np.testing.assert_array_equal(build("ddpg", "cautious").act(obs), build("ddpg", "ddpg").act(obs) / 2)
    with pytest.raises(UserError, match="registered already"):
        register_learner("ddpg")(type("Other", (DDPG,), {}))
