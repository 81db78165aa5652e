"""The agent: one whole update against NumPy, how it acts, what it inherits and what a checkpoint carries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from agent_setup import ACTION, OBS, SKILL, batches, make_agent, restored, same, shake
from helpers import actor, weights_of
from numpy_agent import assert_updates_agree

from cic.core.errors import UserError
from cic.learning.learners.base import learners_for

every_learner = pytest.mark.parametrize("learner", learners_for(()))


# ---- one whole update ------------------------------------------------------------------------------------------


VARIANTS: dict[str, dict[str, Any]] = {
    "released": {},
    "infonce, transitions, encoded policy": {
        "loss": "infonce",
        "particles": "transition",
        "encode_policy": True,
        "normaliser": "std",
    },
    "without representation learning": {"representation": False},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_updates_are_those_of_a_plain_numpy_computation(name: str) -> None:
    """Representation, intrinsic reward after it, critic, actor with the critic after its step, target; with Adam."""
    agent = shake(make_agent(**VARIANTS[name]))
    assert_updates_agree(agent, batches(agent, 3), intrinsic=True)


@pytest.mark.parametrize("learner", ["td3", "sac"])
def test_pretraining_with_another_learner_is_the_same_but_for_the_learner(learner: str) -> None:
    agent = shake(make_agent(learner=learner))
    assert_updates_agree(agent, batches(agent, 2), intrinsic=True)


def test_finetuning_is_rewarded_by_the_task() -> None:
    agent = shake(make_agent())
    assert_updates_agree(agent, batches(agent, 3), intrinsic=False)


def test_saturation_is_part_of_ddpgs_actor_loss() -> None:
    """Relative to the value, through which no gradient passes."""
    agent = shake(make_agent(config={"saturation": 0.7}))
    assert_updates_agree(agent, batches(agent, 2), intrinsic=False)


@every_learner
def test_each_weight_is_differentiated_once_per_update(learner: str) -> None:
    """The critic's get no gradient in the actor's step, and targets never get one."""
    agent = make_agent(learner=learner, config={"actor_every": 1} if learner == "td3" else None)
    calls: dict[str, int] = {}
    for name, value in agent.named_parameters():
        if value.requires_grad:
            value.register_hook(lambda _, name=name: calls.__setitem__(name, calls.get(name, 0) + 1))
    agent.update(batches(agent, 1)[0], intrinsic=True)
    targets = {name for name, _ in agent.named_parameters() if name.startswith("learner.target")}
    assert calls == {name: 1 for name, _ in agent.named_parameters() if name not in targets}
    assert all(value.requires_grad for value in agent.learner.critic.parameters())
    for name, value in agent.named_parameters():
        assert name not in targets or (not value.requires_grad and value.grad is None)


def test_update_leaves_the_batch_alone() -> None:
    agent = make_agent()
    (batch,) = batches(agent, 1)
    tensors = [*batch[:6], *batch.extras.values()]
    before, names = [tensor.clone() for tensor in tensors], list(batch.extras)
    agent.update(batch, intrinsic=True)
    assert all(torch.equal(a, b) for a, b in zip(before, tensors, strict=True))
    assert list(batch.extras) == names


@pytest.mark.parametrize("intrinsic", [True, False])
def test_metrics_are_scalar_tensors_without_gradient(intrinsic: bool) -> None:
    agent = make_agent()
    metrics = agent.update(batches(agent, 1)[0], intrinsic=intrinsic)
    assert set(metrics) >= {"critic/loss", "critic/q", "critic/target", "actor/loss"}
    assert ("reward/intrinsic" in metrics) == intrinsic
    assert ("reward/task" in metrics) != intrinsic
    for name, value in metrics.items():
        assert isinstance(value, torch.Tensor), name
        assert value.numel() == 1, name
        assert not value.requires_grad, name


def test_finetuning_leaves_the_objective_as_it_was() -> None:
    agent = make_agent()
    before = weights_of(agent.objective)
    for batch in batches(agent, 3):
        agent.update(batch, intrinsic=False)
    after = weights_of(agent.objective)
    assert all((before[name] == after[name]).all() for name in before)


@every_learner
def test_the_actor_can_be_left_out_of_an_update(learner: str) -> None:
    agent = shake(make_agent(learner=learner))
    before = weights_of(agent)
    for batch in batches(agent, 2):
        metrics = agent.update(batch, intrinsic=False, actor=False)
        assert not [name for name in metrics if name.startswith("actor/")]
    after = weights_of(agent)
    for name in before:
        if name.startswith("learner.actor.") or name == "learner.log_alpha":
            assert (before[name] == after[name]).all(), name
    assert any((before[name] != after[name]).any() for name in before if name.startswith("learner.critic."))
    assert any((before[name] != after[name]).any() for name in before if name.startswith("learner.target."))


# ---- acting ----------------------------------------------------------------------------------------------------


def test_mean_actions_are_the_actors() -> None:
    agent = shake(make_agent())
    rng = np.random.default_rng(0)
    obs, skill = rng.standard_normal((7, OBS)).astype(np.float32), rng.random((7, SKILL), dtype=np.float32)
    seen = np.concatenate([obs, skill], axis=1).astype(np.float64)
    action = agent.act(obs, skill)
    assert action.dtype == np.float32
    np.testing.assert_allclose(action, np.tanh(actor(weights_of(agent), "learner.actor", seen)), atol=2e-6)
    assert (agent.act(obs, skill) == action).all(), "the mean action has no noise"


def test_one_observation_gives_one_action() -> None:
    agent = make_agent()
    obs, skill = np.ones(OBS, np.float32), np.full(SKILL, 0.5, np.float32)
    action = agent.act(obs, skill)
    assert action.shape == (ACTION,)
    np.testing.assert_allclose(agent.act(obs[None], skill[None])[0], action, atol=1e-6)
    np.testing.assert_allclose(agent.act(np.tile(obs, (3, 1)), skill), np.tile(action, (3, 1)), atol=1e-6)


def test_agents_without_skills_act_without_one() -> None:
    assert make_agent("ddpg").act(np.ones(OBS, np.float32)).shape == (ACTION,)


def test_an_agent_acts_by_the_skill_that_was_chosen_for_it() -> None:
    agent = shake(make_agent())
    obs, skill = np.ones((2, OBS), np.float32), np.full(SKILL, 0.5, np.float32)
    agent.skill = skill
    assert (agent.act(obs) == agent.act(obs, skill)).all()
    assert (agent.act(obs) != agent.act(obs, skill + 1)).any()


@pytest.mark.parametrize(
    ("obs", "skill", "word"),
    [
        ((5, OBS + 1), (5, SKILL), "observes"),
        ((5, OBS), (5, SKILL + 1), "dimension"),
        ((5, OBS), None, "no chosen skill: set `agent.skill`"),
        ((5, OBS), (3, SKILL), "one skill or as many"),
    ],
)
def test_inputs_of_the_wrong_width_are_refused(obs: Any, skill: Any, word: str) -> None:
    agent = make_agent()
    with pytest.raises(UserError, match=word):
        agent.act(np.zeros(obs, np.float32), None if skill is None else np.zeros(skill, np.float32))


# ---- seeds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"reward": "uncertainty"}, {"encode_policy": True}])
def test_the_same_seed_gives_the_same_bits(options: dict[str, Any]) -> None:
    first, second = make_agent(seed=3, **options), make_agent(seed=3, **options)
    obs, skill = np.ones((4, OBS), np.float32), np.ones((4, SKILL), np.float32)
    for batch in batches(first, 4):
        assert (first.act(obs, skill, explore=True) == second.act(obs, skill, explore=True)).all()
        first.update(batch, intrinsic=True)
        second.update(batch, intrinsic=True)
    assert same(first, second)
    other = make_agent(seed=4, **options).state_dict()
    assert any(
        not torch.equal(value, other[name]) for name, value in make_agent(seed=3, **options).state_dict().items()
    )


@every_learner
def test_torchs_global_generator_is_left_alone(learner: str) -> None:
    before = torch.get_rng_state()
    agent = make_agent(learner=learner, reward="uncertainty")
    agent.act(np.ones((4, OBS), np.float32), np.ones((4, SKILL), np.float32), explore=True)
    agent.update(batches(agent, 1)[0], intrinsic=True)
    assert torch.equal(torch.get_rng_state(), before)


# ---- weights from elsewhere ------------------------------------------------------------------------------------


@every_learner
@pytest.mark.parametrize("taken", ["trunk", "all", "none"])
def test_inherits_actor_objective_and_as_much_of_the_critic_as_asked(learner: str, taken: Any) -> None:
    source, agent = shake(make_agent(learner=learner, seed=1)), make_agent(learner=learner, seed=2)
    source.objective.reward(batches(source, 1)[0])  # so that its statistics are not the initial ones
    fresh = weights_of(agent)
    agent.inherit(source.state_dict(), taken)
    got, theirs = weights_of(agent), weights_of(source)
    for name in got:
        if name.startswith(("learner.actor.", "objective.")):
            origin = theirs[name]
        elif name.startswith("learner.target_actor."):
            origin = theirs[name.replace("target_actor.", "actor.", 1)]
        elif name.startswith("learner.target."):
            origin = got[name.replace("target.", "critic.", 1)]
        else:
            origin = (theirs if taken == "all" or (taken == "trunk" and ".trunk." in name) else fresh)[name]
        if name not in ("learner.log_alpha", "learner._extra_state"):
            assert (got[name] == origin).all(), name
    assert any(".trunk." in name for name in got)


def test_what_was_inherited_is_a_copy() -> None:
    source, agent = make_agent(seed=1), make_agent(seed=2)
    agent.inherit(source.state_dict(), "all")
    before = weights_of(source)
    agent.update(batches(agent, 1)[0], intrinsic=True)
    assert all((before[name] == value).all() for name, value in weights_of(source).items())


# ---- checkpoints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("done", [0, 3])
@pytest.mark.parametrize("intrinsic", [True, False])
def test_an_agent_rebuilt_from_its_state_continues_bit_exactly(intrinsic: bool, done: int) -> None:
    first = make_agent(seed=1)
    todo = batches(first, done + 3)
    for batch in todo[:done]:
        first.update(batch, intrinsic=intrinsic)
    second = restored(first, make_agent(seed=2))
    obs, skill = np.ones((4, OBS), np.float32), np.ones((4, SKILL), np.float32)
    for batch in todo[done:]:
        first.update(batch, intrinsic=intrinsic)
        second.update(batch, intrinsic=intrinsic)
        assert (first.act(obs, skill, explore=True) == second.act(obs, skill, explore=True)).all()
    assert same(first, second)


@pytest.mark.parametrize(("learner", "more"), [("ddpg", set()), ("td3", set()), ("sac", {"temperature"})])
def test_optimiser_state_holds_moments_of_every_part(learner: str, more: set[str]) -> None:
    agent = make_agent(learner=learner)
    for batch in batches(agent, 2):
        agent.update(batch, intrinsic=True)
    owners = {name.split(".")[0] for name in agent.optimiser_state()}
    assert owners == {"generator", "actor", "critic", "objective"} | more
