"""METRA, LSD, CSF, VISR and their critic against NumPy in double precision; gradients by central differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import Weights, build_objective, critic, doubles, gradient, random_batch, relu_mlp, unit, weights_of
from objective_setup import Representation, build, make_batch

import cic
from cic.core.errors import UserError
from cic.core.types import Batch, Spaces
from cic.learning.objectives import Objective, get_objective
from cic.learning.successor import SuccessorCritic, least_squares
from cic.training.settings import override, pretrain_defaults

SIZE, OBS, ACTION = 6, 3, 2


def batch_for(objective: Objective, seed: int = 0, spread: float = 1.0) -> Batch:
    """In double precision, with skills of the objective's own."""
    batch = random_batch(SIZE, OBS, ACTION, objective.skills.dim, seed, spread)
    skill = objective.skills.sample(SIZE, np.random.default_rng(seed))
    batch = batch._replace(skill=torch.from_numpy(skill))
    doubled = Batch(*(tensor.double() for tensor in batch[:6]), extras=batch.extras)
    return doubled._replace(extras={name: tensor.double() for name, tensor in batch.extras.items()})


def directions(batch: Batch, kind: str) -> np.ndarray:
    z = doubles(batch.skill)
    return (z - 1 / z.shape[1]) * z.shape[1] / (z.shape[1] - 1) if kind == "onehot" else z


def assert_gradients(objective: torch.nn.Module, loss: torch.Tensor, expected: Weights, rtol: float = 1e-6) -> None:
    named = dict(objective.named_parameters())
    slopes = torch.autograd.grad(loss, [named[name] for name in expected], allow_unused=True)
    for (name, wanted), slope in zip(expected.items(), slopes, strict=True):
        found = np.zeros_like(wanted) if slope is None else doubles(slope)
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=2e-6, err_msg=name)


# ---- METRA -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sphere", "normal", "onehot"])
@pytest.mark.parametrize("measure", ["mean", "sum"])
@pytest.mark.parametrize("spread", [0.1, 3.0])  # steps within the bound, and beyond
def test_metra(kind, measure, spread):
    objective = build_objective("metra", OBS, ACTION, skill_dim=3, skill_kind=kind, step_size=measure).double()
    batch, w = batch_for(objective, spread=spread), weights_of(objective)
    z, dual = directions(batch, kind), float(w["log_dual"])
    assert dual == pytest.approx(math.log(30))

    def parts(w: Weights) -> tuple[float, float]:
        step = relu_mlp(w, "latent", doubles(batch.next_obs)) - relu_mlp(w, "latent", doubles(batch.obs))
        size = (step**2).mean(axis=1) if measure == "mean" else (step**2).sum(axis=1)
        return float((step * z).sum(axis=1).mean()), float(np.minimum(1e-3, 1 - size).mean())

    along, unused = parts(w)
    loss, metrics = objective.loss(batch)
    assert float(loss.detach()) == pytest.approx(-(along + 30 * unused) + dual * unused, rel=1e-6)
    assert float(metrics["representation/dual"]) == pytest.approx(30, rel=1e-6)
    # φ does not feel the dual's term, and log λ feels the bound alone: two steps in one.
    expected = gradient(lambda w: -(parts(w)[0] + 30 * parts(w)[1]), w, ("latent.",))
    assert_gradients(objective, loss, expected | {"log_dual": np.array(unused)}, rtol=1e-5)
    step = relu_mlp(w, "latent", doubles(batch.next_obs)) - relu_mlp(w, "latent", doubles(batch.obs))
    np.testing.assert_allclose(doubles(objective.reward(batch)), (step * z).sum(axis=1, keepdims=True), rtol=1e-6)


def test_metras_dual_variable_rises_where_steps_are_too_long_at_its_own_rate():
    objective = build("metra", dual_lr=0.5)
    rates = [group["lr"] for group in objective.parameter_groups(1e-3)]
    assert rates == [1e-3, 0.5]
    batch = make_batch(objective.skills)
    long, short = batch._replace(next_obs=batch.obs + 50), batch._replace(next_obs=batch.obs)
    before = objective.log_dual.item()
    Representation(objective).update(long)
    assert objective.log_dual.item() == pytest.approx(before + 0.5, abs=1e-3)  # Adam's first step is its rate
    Representation(objective).update(short)
    assert objective.log_dual.item() == pytest.approx(before, abs=1e-3)


@pytest.mark.parametrize("name", ["metra", "lsd", "csf", "hilp"])
def test_the_skill_towards_a_goal_points_along_the_latent_step(name):
    objective = build(name)
    batch = make_batch(objective.skills)
    skill = objective.goal_skill(batch.obs, batch.next_obs)
    latent = objective.latents[0] if name == "hilp" else objective.latent
    step = doubles(latent(batch.next_obs) - latent(batch.obs))
    np.testing.assert_allclose(doubles(skill), objective.skills.radius * unit(step), rtol=1e-4, atol=1e-5)


def test_the_one_hot_skill_towards_a_goal_is_the_nearest_corner():
    objective = build("metra", skill_kind="onehot", skill_dim=5)
    batch = make_batch(objective.skills)
    step = doubles(objective.latent(batch.next_obs) - objective.latent(batch.obs))
    assert torch.equal(objective.goal_skill(batch.obs, batch.next_obs).argmax(dim=1), torch.from_numpy(step).argmax(1))


# ---- LSD -------------------------------------------------------------------------------------------------------


def lsd_latent(w: Weights, x: np.ndarray) -> np.ndarray:
    """Each weight by the singular value that its two vectors estimate."""
    for layer in (0, 2, 4):
        weight = w[f"latent.{layer}.weight"]
        value = w[f"latent.{layer}.left"] @ weight @ w[f"latent.{layer}.right"]
        x = x @ (weight / value).T + w[f"latent.{layer}.bias"]
        x = np.maximum(x, 0) if layer < 4 else x
    return x


@pytest.mark.parametrize("kind", ["sphere", "normal", "onehot"])
def test_lsd(kind):
    objective = build_objective("lsd", OBS, ACTION, skill_dim=3, skill_kind=kind).double()
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():  # off the orthogonal start, where every singular value is 1
        for weight in objective.parameters():
            weight += torch.randn(weight.shape, generator=noise)
    batch, w = batch_for(objective), weights_of(objective)
    z = directions(batch, kind)

    def along(w: Weights) -> np.ndarray:
        return ((lsd_latent(w, doubles(batch.next_obs)) - lsd_latent(w, doubles(batch.obs))) * z).sum(axis=1)

    loss, _ = objective.loss(batch)
    assert float(loss.detach()) == pytest.approx(-along(w).mean(), rel=1e-6)
    names = tuple(name for name, _ in objective.named_parameters())
    assert_gradients(objective, loss, gradient(lambda w: float(-along(w).mean()), w, names), rtol=1e-5)
    np.testing.assert_allclose(doubles(objective.reward(batch)), along(w)[:, None], rtol=1e-6)


def test_lsds_layers_never_stretch_once_the_iteration_has_settled():
    objective = build("lsd")
    with torch.no_grad():
        for weight in objective.parameters():
            weight.mul_(7)
    for _ in range(200):
        objective.after_step()
    for layer in (0, 2, 4):
        part = objective.latent[layer]
        largest = float((part.left @ part.weight @ part.right).detach())
        assert largest == pytest.approx(np.linalg.norm(doubles(part.weight), 2), rel=1e-3)
    a, b = make_batch(objective.skills).obs, make_batch(objective.skills, seed=1).obs
    apart = torch.linalg.vector_norm(objective.latent(a) - objective.latent(b), dim=1)
    assert (apart <= 1.01 * torch.linalg.vector_norm(a - b, dim=1)).all()


# ---- CSF and VISR ----------------------------------------------------------------------------------------------


def test_csf():
    objective = build_objective("csf", OBS, ACTION, skill_dim=3, negatives=7).double()
    batch, w = batch_for(objective), weights_of(objective)
    batch = objective.prepare(batch, torch.Generator().manual_seed(1))
    batch = batch.with_extras(negatives=batch.extras["negatives"].double())
    negatives = doubles(batch.extras["negatives"])
    assert negatives.shape == (7, 3)
    np.testing.assert_allclose(np.linalg.norm(negatives, axis=1), 1, rtol=1e-6)

    def step(w: Weights) -> np.ndarray:
        return relu_mlp(w, "latent", doubles(batch.next_obs)) - relu_mlp(w, "latent", doubles(batch.obs))

    def expected(w: Weights) -> float:
        terms = []
        for delta, z in zip(step(w), doubles(batch.skill), strict=True):
            terms.append(delta @ z - 5 * math.log(sum(math.exp(delta @ other) for other in negatives)))
        return -sum(terms) / len(terms)

    loss, _ = objective.loss(batch)
    assert float(loss.detach()) == pytest.approx(expected(w), rel=1e-6)
    assert_gradients(objective, loss, gradient(expected, w, ("latent.",)), rtol=1e-5)
    np.testing.assert_allclose(doubles(objective.reward(batch)), step(w), rtol=1e-6)


def test_csf_regression_finds_the_direction_whatever_the_offsets():
    objective = build("csf", skill_dim=4)
    states = make_batch(objective.skills, size=300).next_obs
    planted = make_batch(objective.skills, size=1, seed=9).skill[0]
    reward = 3 * objective.latent(states).detach() @ planted + 100
    found = objective.infer_skill(states, reward[:, None])
    np.testing.assert_allclose(doubles(found), doubles(planted), atol=1e-3)
    assert objective.infer_skill(states, torch.full((300, 1), 7.0)) is None, "constant rewards say nothing"


def test_visr():
    objective = build_objective("visr", OBS, ACTION).double()
    batch, w = batch_for(objective), weights_of(objective)

    def features(w: Weights) -> np.ndarray:
        return unit(relu_mlp(w, "features", doubles(batch.next_obs)))

    def expected(w: Weights) -> float:
        return float(-(features(w) * doubles(batch.skill)).sum(axis=1).mean())

    loss, _ = objective.loss(batch)
    assert float(loss.detach()) == pytest.approx(expected(w), rel=1e-6)
    assert_gradients(objective, loss, gradient(expected, w, ("features.",)), rtol=1e-5)
    np.testing.assert_allclose(doubles(objective.reward(batch)), features(w), rtol=1e-6)


def test_visr_regression_recovers_a_planted_skill():
    objective = build("visr")
    states = make_batch(objective.skills, size=400).next_obs
    planted = make_batch(objective.skills, size=1, seed=9).skill[0]
    features = torch.nn.functional.normalize(objective.features(states).detach(), dim=1)
    np.testing.assert_allclose(
        doubles(objective.infer_skill(states, 4 * features @ planted[:, None])), doubles(planted), atol=1e-4
    )
    assert least_squares(features, torch.zeros(400, 1)) is None


# ---- the critic of features ------------------------------------------------------------------------------------


def successor_parts(seed: int = 0):
    torch.manual_seed(seed)
    online, target = (SuccessorCritic(OBS + 3, ACTION, 8, out=3).double() for _ in range(2))
    batch = batch_for(build_objective("csf", OBS, ACTION, skill_dim=3))
    x, later = (torch.cat([obs, batch.skill], dim=1) for obs in (batch.obs, batch.next_obs))
    return online, target, batch._replace(obs=x, next_obs=later)


@pytest.fixture(autouse=True)
def _own_global_generator():
    with torch.random.fork_rng(devices=[]):
        yield


def test_features_are_learned_by_the_target_head_that_values_the_skill_least():
    online, target, batch = successor_parts()
    rng = np.random.default_rng(0)
    reward, action = rng.standard_normal((SIZE, 3)), rng.uniform(-1, 1, (SIZE, ACTION))
    batch = batch._replace(reward=torch.from_numpy(reward))
    psi = critic({f"t.{k}": v for k, v in weights_of(target).items()}, "t", doubles(batch.next_obs), action)
    chosen = []
    for row, z in enumerate(doubles(batch.skill)):
        values = [float(head[row] @ z) for head in psi]
        chosen.append(psi[int(np.argmin(values))][row])
    assert len({int(np.argmin([h[r] @ z for h in psi])) for r, z in enumerate(doubles(batch.skill))}) == 2
    goal = reward + doubles(batch.discount) * np.array(chosen)

    def expected(w: Weights) -> float:
        heads = critic({f"c.{k}": v for k, v in w.items()}, "c", doubles(batch.obs), doubles(batch.action))
        return float(sum(((head - goal) ** 2).mean() for head in heads))

    loss, _ = online.td_loss(target, batch, torch.from_numpy(action), torch.ones(SIZE, 1).double())
    w = weights_of(online)
    assert float(loss.detach()) == pytest.approx(expected(w), rel=1e-6)
    assert_gradients(online, loss, gradient(expected, w, ("",)), rtol=1e-5)


def test_a_tasks_reward_teaches_the_product_alone():
    online, target, batch = successor_parts()
    action = torch.zeros(SIZE, ACTION).double()
    loss, _ = online.td_loss(target, batch, action, 0.5)
    with torch.no_grad():
        later = (target.features(batch.next_obs, action) * batch.skill).sum(-1, keepdim=True).amin(0)
        goal = batch.reward + batch.discount * (later + 0.5)
        now = (online.features(batch.obs, batch.action) * batch.skill).sum(-1, keepdim=True)
    assert float(loss.detach()) == pytest.approx(float((now - goal).square().mean(dim=(1, 2)).sum()), rel=1e-6)


# ---- bad input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("metra", {"skill_kind": "cube"}, "METRA cannot use cube skills: choose sphere or normal or onehot"),
        ("metra", {"skill_kind": "onehot", "skill_dim": 1}, "skill_dim must be at least 2 for onehot skills, not 1"),
        ("metra", {"slack": 0.0}, "slack must be positive, not 0.0"),
        ("lsd", {"skill_kind": "cube"}, "LSD cannot use cube skills: choose sphere or normal or onehot"),
        ("lsd", {"skill_dim": 0}, "skill_dim must be at least 1 for normal skills, not 0"),
        ("csf", {"skill_dim": 1}, "skill_dim must be at least 2, not 1"),
        ("csf", {"negatives": 0}, "negatives must be at least 1, not 0"),
        ("visr", {"skill_dim": 1}, "skill_dim must be at least 2, not 1"),
        ("fb", {"skill_dim": 1}, "skill_dim must be at least 2, not 1"),
        ("hilp", {"expectile": 1.0}, r"expectile must lie in \(0, 1\), not 1.0"),
        ("vic", {"skill_dim": 1}, "skill_dim must be at least 2, not 1"),
        ("valor", {"first_skills": 17}, "first_skills must lie in 1 to 16"),
        ("becl", {"contrastive_batches": 0}, "contrastive_batches must be at least 1, not 0"),
        ("dads", {"prior_samples": 0}, "prior_samples must be at least 1, not 0"),
        ("ssn4hrl", {"plane": ()}, "plane must contain indices of the observation, not \\(\\)"),
    ],
)
def test_options_that_a_method_cannot_use_get_one_sentence(name, options, sentence):
    with pytest.raises(UserError, match=f"^{sentence}$"):
        get_objective(name).Options(**options)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (
            "ssn4hrl",
            {"plane": (0, 7)},
            "ssn4hrl counts over entries 0, 7 of the observation, which has only 4: set `plane`",
        ),
        ("dads", {"dynamics_of": (0, 9)}, "dynamics_of names entry 9, but observations have entries 0 to 3"),
    ],
)
def test_an_environment_without_the_named_entries_gets_one_sentence(name, options, sentence):
    cls = get_objective(name)
    with pytest.raises(UserError, match=f"^{sentence}"):
        cls(Spaces(4, 2), 8, cls.Options(**options))


def test_a_domain_that_names_no_plane_gets_one_sentence_unless_the_user_does(tmp_path):
    small = {"scale": "smoke", "steps": 120, "quiet": True}
    with pytest.raises(UserError, match=r"^ssn4hrl counts visits in a plane, and walker has no default: set `plane`"):
        cic.pretrain("walker", "ssn4hrl", out=tmp_path / "run", **small)
    assert not (tmp_path / "run").exists()
    assert pretrain_defaults("half_cheetah", "ssn4hrl").options.plane == (0,)
    config = override(pretrain_defaults("walker", "ssn4hrl"), {"plane": (3, 4)})
    assert config.options.plane == (3, 4)
