"""What every registered method must keep. A new file in `objectives/` is tested here with no new test code."""

from __future__ import annotations

import copy
import dataclasses
import re
import sys
import typing

import pytest
import safetensors.torch
import torch
from helpers import documented_fields
from objective_setup import Representation, build, make_batch, prepared

from cic.learning.objectives import Objective, get_objective, objectives

NAMES = [name for name, _ in objectives()]
PAPER = re.compile(r"[A-Z]\w+ (et al\. |& [A-Z]\w+ )?(19|20)\d\d")
CANCELS = re.compile(r"latents?\.([01]\.)?4\.bias$")
"""The last bias of φ, which drops out of φ(s') − φ(s)."""
every_method = pytest.mark.parametrize("name", NAMES)


def learns(objective: Objective) -> bool:
    return bool(objective.parameter_groups(1e-3))


every_learning_method = pytest.mark.parametrize("name", [name for name in NAMES if learns(build(name))])


def trained(objective: Objective) -> list[torch.nn.Parameter]:
    return [parameter for group in objective.parameter_groups(1e-3) for parameter in group["params"]]


def test_the_methods_of_the_paper_are_all_here():
    baselines = {"aps", "apt", "ddpg", "diayn", "disagreement", "fixed", "icm", "proto", "rnd", "smm"}
    assert {"cic", *baselines} <= set(NAMES)
    assert {"dads", "visr", "vic", "valor", "ssn4hrl"} <= set(NAMES), "of the table of competence-based methods"
    assert {"metra", "lsd", "csf", "becl", "fb", "hilp"} <= set(NAMES), "that came after it"


@every_method
@pytest.mark.parametrize("obs", [4, 24, 78])
def test_shapes(name, obs):
    objective = build(name, obs)
    batch = prepared(objective, make_batch(objective.skills, obs))
    if learns(objective):
        loss, metrics = objective.loss(batch)
        assert loss.shape == ()
        assert loss.isfinite()
        for key, value in metrics.items():
            assert re.fullmatch(r"[a-z_]+/[a-z_]+", key)
            assert value.shape == (), key
            assert not value.requires_grad, key
            assert value.isfinite(), key
    reward = objective.reward(batch)
    paid_in_features = type(objective).make_critic is not Objective.make_critic and reward.shape[1] > 1
    assert reward.shape == (len(batch.obs), objective.skills.dim if paid_in_features else 1)
    assert reward.dtype == torch.float32
    assert reward.isfinite().all()
    assert not reward.requires_grad
    for key, value in objective.diagnose(batch).items():
        assert re.fullmatch(r"[a-z_]+/[a-z_]+", key)
        assert value.shape == (), key
        assert value.isfinite(), key


@every_method
@pytest.mark.parametrize("obs", [4, 78])
def test_policy_and_critic_fit(name, obs):
    objective = build(name, obs)
    batch = make_batch(objective.skills, obs)
    seen = objective.policy_input(batch.obs, batch.skill)
    assert seen.shape == (len(batch.obs), objective.policy_input_dim)
    critic = objective.make_critic()
    assert critic(seen, batch.action, batch.skill).shape == (2, len(batch.obs), 1)
    assert objective.infer_skill(batch.next_obs, batch.reward) is None or objective.skills.kind != "none"


@every_learning_method
def test_gradients_reach_what_is_trained_and_nothing_else(name):
    objective = build(name)
    batch = make_batch(objective.skills)
    batch = prepared(objective, batch._replace(reward=batch.reward.requires_grad_()))
    objective.loss(batch)[0].backward()
    optimised = trained(objective)
    assert len({id(p) for p in optimised}) == len(optimised)
    for key, parameter in objective.named_parameters():
        if any(parameter is p for p in optimised):
            assert parameter.grad is not None, key
            assert parameter.grad.isfinite().all(), key
            assert parameter.grad.any() or CANCELS.match(key), key
        else:
            assert not parameter.requires_grad, key
            assert parameter.grad is None, key
    assert batch.reward.grad is None, "pre-training must not see the task's reward"


@every_method
def test_reward_changes_no_parameter_and_leaves_no_graph(name):
    objective = build(name)
    batch = make_batch(objective.skills)
    before = {key: p.clone() for key, p in objective.named_parameters()}
    batch = batch._replace(obs=batch.obs.requires_grad_(), next_obs=batch.next_obs.requires_grad_())
    batch = prepared(objective, batch)
    assert not any(extra.requires_grad for extra in batch.extras.values())
    assert objective.reward(batch).grad_fn is None
    for key, parameter in objective.named_parameters():
        assert torch.equal(parameter, before[key]), key
        assert parameter.grad is None, key


@every_method
def test_inputs_are_not_written(name):
    objective = build(name)
    batch = make_batch(objective.skills)
    representation = Representation(objective)
    batch = representation.prepare(batch)
    tensors = {**dict(zip(batch._fields[:6], batch[:6], strict=True)), **batch.extras}
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    representation.update(batch)
    for name, now in tensors.items():
        assert torch.equal(now, copies[name]), name


@every_method
def test_same_seed_same_everything(name):
    def run(seed):
        objective = build(name, seed=seed)
        representation = Representation(objective, seed=seed)
        rewards = [representation.update(make_batch(objective.skills, seed=i)) for i in range(4)]
        return torch.stack(rewards), objective.state_dict()

    first, state = run(seed=3)
    second, state_again = run(seed=3)
    assert torch.equal(first, second)
    for key, value in state.items():
        assert torch.equal(value, state_again[key]), key
    if learns(build(name)):
        other = run(seed=4)[1]
        assert any(not torch.equal(value, other[key]) for key, value in state.items())


@every_method
def test_randomness_comes_in_by_prepare_alone(name):
    objective = build(name)
    batch = make_batch(objective.skills)
    state = torch.get_rng_state()
    Representation(objective).update(batch)
    assert torch.equal(torch.get_rng_state(), state)
    assert not [part for part in vars(objective).values() if isinstance(part, torch.Generator)]


@every_method
def test_save_and_load_continue_identically(name):
    objective = build(name, seed=1)
    representation = Representation(objective)
    batches = [make_batch(objective.skills, size=512, seed=i) for i in range(6)]
    for batch in batches[:3]:
        representation.update(batch)

    saved = safetensors.torch.save({key: value.contiguous() for key, value in objective.state_dict().items()})
    other = build(name, seed=2)
    other.load_state_dict(safetensors.torch.load(saved))
    resumed = Representation(other)
    resumed.generator.set_state(representation.generator.get_state())
    if representation.optimiser is not None and resumed.optimiser is not None:
        resumed.optimiser.load_state_dict(copy.deepcopy(representation.optimiser.state_dict()))

    for batch in batches[3:]:
        assert torch.equal(representation.update(batch), resumed.update(batch))
    for key, value in objective.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key


@every_method
def test_no_tensor_hides_from_the_checkpoint(name):
    objective = build(name)
    Representation(objective).update(make_batch(objective.skills))
    for path, module in objective.named_modules():
        hidden = [key for key, value in vars(module).items() if isinstance(value, torch.Tensor)]
        assert not hidden, path


@every_learning_method
def test_loss_descends_on_a_fixed_batch(name):
    objective = build(name)
    batch = make_batch(objective.skills, size=64)
    representation = Representation(objective)
    losses = torch.tensor([representation.step(representation.prepare(batch)) for _ in range(40)])
    assert losses[-5:].mean() < losses[:3].mean()
    assert losses.isfinite().all()


@every_method
def test_a_batch_smaller_than_k_and_one_of_equal_states(name):
    objective = build(name)
    representation = Representation(objective)
    assert representation.update(make_batch(objective.skills, size=2)).isfinite().all()
    batch = make_batch(objective.skills)
    same = batch._replace(obs=batch.obs[:1].expand(32, -1), next_obs=batch.obs[:1].expand(32, -1))
    assert representation.update(same).isfinite().all()
    assert representation.update(batch).isfinite().all()


@every_method
def test_new_tensors_follow_the_batchs_device(name):
    """A tensor made without `device=` would land on the meta device here and refuse to meet the others."""
    objective = build(name)
    batch = make_batch(objective.skills)
    with torch.device("meta"):
        batch = prepared(objective, batch)
        assert all(extra.device.type == "cpu" for extra in batch.extras.values())
        if learns(objective):
            assert objective.loss(batch)[0].device.type == "cpu"
        objective.after_step()
        assert objective.reward(batch).device.type == "cpu"
        objective.diagnose(batch)
        skill = objective.infer_skill(batch.next_obs, batch.reward)
        assert skill is None or skill.device.type == "cpu"


@every_method
def test_skills_are_in_their_space(name):
    space = build(name).skills
    skills = make_batch(space, size=200).skill
    assert skills.shape == (200, space.dim)
    if space.kind == "none":
        assert space.dim == 0
    if space.kind == "onehot":
        assert torch.equal(skills.sum(dim=1), torch.ones(200))
        assert set(skills.unique().tolist()) == {0.0, 1.0}
    if space.kind == "sphere":
        torch.testing.assert_close(skills.norm(dim=1), torch.full((200,), space.radius))
    if space.kind == "cube":
        assert skills.abs().max() <= 1
    if space.kind == "box":
        assert skills.min() >= 0
        assert skills.max() <= 1


@every_method
def test_options_are_documented_flags(name):
    options = get_objective(name).Options
    names = [field.name for field in dataclasses.fields(options)]
    flags = [name.replace("_", "-").lower() for name in names]
    assert len(set(flags)) == len(flags)
    assert options() == options(), "every option has a default"
    assert documented_fields(options) == set(names)


@every_method
def test_presets_and_scales_are_options(name):
    cls = get_objective(name)
    for preset, chosen in (cls.presets | cls.scales).items():
        objective = build(name, **chosen)
        assert Representation(objective).update(make_batch(objective.skills)).isfinite().all(), preset


def test_a_flag_means_one_type_everywhere():
    types: dict[str, tuple[str, object]] = {}
    for name, cls in objectives():
        hints = typing.get_type_hints(cls.Options)
        for field in dataclasses.fields(cls.Options):
            owner, known = types.setdefault(field.name, (name, hints[field.name]))
            assert known == hints[field.name], f"{field.name} of {name} and of {owner}"


@every_method
def test_it_names_its_paper(name):
    cls = get_objective(name)
    assert PAPER.search(cls.__doc__ or ""), "the class's docstring"
    assert PAPER.search(sys.modules[cls.__module__].__doc__ or ""), "the module's docstring"
    assert cls.title
