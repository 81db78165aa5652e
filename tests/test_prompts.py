"""Prompts: the skill of a reward, for every kind of prompt and agent, and the run folder of the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from objectives.objective_setup import build

import cic
from cic.core.errors import UserError
from cic.core.formula_reward import FormulaReward, quantity_values
from cic.core.named_quantities import NamedQuantity
from cic.learning.prompts import SkillPaths, answer, linear_weights, no_paths, ranked_skills

POINT = cic.envs.domains()["point_mass"].quantities
SMALL: dict[str, Any] = {
    "steps": 800,
    "update_every": 8,
    "library": 6,
    "library_starts": 2,
    "library_steps": 40,
    "quiet": True,
}


@pytest.fixture(scope="module")
def steered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prompts") / "steer"
    return cic.pretrain("gridworld", "steer", scale="smoke", out=out, **SMALL).path


# ---- formulas of quantities ------------------------------------------------------------------------------------


def test_values_and_rewards_are_those_of_numpy() -> None:
    obs = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    values = quantity_values(POINT, obs)
    np.testing.assert_allclose(values["away"], obs[:, 0].astype(float) ** 2 + obs[:, 1].astype(float) ** 2)
    reward = FormulaReward("x - 2 * abs(y) + obs[3]", POINT, 4)
    wanted = obs[:, 0].astype(float) - 2 * np.abs(obs[:, 1]) + obs[:, 3]
    np.testing.assert_allclose(reward(obs), wanted, rtol=1e-6)


def test_a_reward_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(UserError, match=r"not finite at 100% of the states.*max\(…, 0\)"):
        FormulaReward("sqrt(x - 99)", POINT, 4)(np.zeros((3, 4), np.float32))


def test_an_environment_with_the_formula_as_its_reward() -> None:
    env = cic.envs.make("point_mass => x + 1", num_envs=3, threads=1)
    env.reset(seed=0)
    obs, reward, _, _, info = env.step(np.ones((3, 2), np.float32))
    np.testing.assert_allclose(reward, obs[:, 0] + 1, rtol=1e-6)
    assert (env.task, env.tasks, env.domain, env.num_envs) == (None, (), "point_mass", 3)
    assert "rewards" not in info
    env.close()
    assert env.closed
    assert cic.envs.split_name("walker => speed - 1") == ("walker", "speed - 1")
    assert cic.envs.would_run("gymnasium:evil:Env-v0 => 1") is not None
    with pytest.raises(UserError, match=r'"z", position 1: unknown name'):
        cic.envs.make("point_mass => z")


# ---- linear rewards --------------------------------------------------------------------------------------------


def test_a_linear_formula_gives_its_weights_in_units_of_the_scales() -> None:
    objective: Any = build("steer", 4, quantities=POINT)
    found = answer(objective, "3 * x - y + 0.5 * away + 7", POINT, no_paths(objective))
    wanted = np.array([3 * 0.3, -0.3, 0.5 * 0.09])
    assert found.how == "linear"
    np.testing.assert_allclose(found.skill, wanted / np.linalg.norm(wanted), atol=1e-4)


def test_a_squared_distance_is_linear_if_there_is_a_quantity_for_it() -> None:
    objective: Any = build("steer", 4, quantities=POINT)
    found = answer(objective, "-(x - 0.1) ** 2 - (y + 0.2) ** 2", POINT, no_paths(objective))
    wanted = np.array([2 * 0.1 * 0.3, -2 * 0.2 * 0.3, -0.09])
    assert found.how == "linear"
    np.testing.assert_allclose(found.skill, wanted / np.linalg.norm(wanted), atol=1e-4)


@pytest.mark.parametrize("text", ["x * y", "abs(x)", "max(x, 0)", "x > 0", "tolerance(x, 0.1, 0.2, 0.1)"])
def test_other_formulas_are_not_linear(text: str) -> None:
    objective: Any = build("steer", 4, quantities=POINT)
    states = np.random.default_rng(0).normal(0, 0.1, (64, 4)).astype(np.float32)
    assert linear_weights(objective, FormulaReward(text, POINT, 4), states) is None


def test_a_constant_reward_is_an_error() -> None:
    objective: Any = build("steer", 4, quantities=POINT)
    with pytest.raises(UserError, match="the same everywhere"):
        answer(objective, "2 + 0 * x", POINT, no_paths(objective))


# ---- the library -----------------------------------------------------------------------------------------------


def made_library(dim: int, obs: int) -> SkillPaths:
    """Four skills with two paths each; skill k reaches x = k / 10."""
    rng = np.random.default_rng(1)
    skills = np.repeat(rng.standard_normal((4, dim)), 2, axis=0).astype(np.float32)
    skills /= np.linalg.norm(skills, axis=1, keepdims=True)
    paths = 0.001 * rng.standard_normal((8, 10, obs)).astype(np.float32)
    paths[:, 5:, 0] += 0.1 * np.repeat(np.arange(4), 2)[:, None]
    return SkillPaths(skills, paths)


def test_skills_are_ranked_by_the_second_half_of_their_paths() -> None:
    library = made_library(3, 4)
    rewards = library.paths[..., 0].astype(float)
    rewards[:, :5] = [[100]] * 8  # the first half does not count
    means = rewards[:, 5:].mean(axis=1).reshape(4, 2).mean(axis=1)
    np.testing.assert_array_equal(ranked_skills(library.skills, rewards), library.skills[::2][np.argsort(-means)])


@pytest.mark.parametrize("method", ["steer", "diayn"])
def test_without_inference_the_best_recorded_skill_answers(method: str) -> None:
    objective = build(method, 4, **({"quantities": POINT} if method == "steer" else {"skill_dim": 3}))
    library = made_library(3, 4)
    found = answer(objective, "-abs(x - 0.2)", POINT, library)
    assert found.how == "library"
    np.testing.assert_array_equal(found.skill, library.skills[4])
    by_function = answer(objective, lambda obs: -np.abs(obs[:, 0] - 0.1), POINT, library)
    np.testing.assert_array_equal(by_function.skill, library.skills[2])
    goal = np.array([0.3, 0, 0, 0], np.float32)
    np.testing.assert_array_equal(answer(objective, goal, POINT, library).candidates[0], library.skills[6])


@pytest.mark.parametrize("method", ["aps", "visr", "csf", "hilp", "fb"])
def test_methods_that_infer_skills_answer_themselves(method: str) -> None:
    objective = build(method, 4, **({} if method == "fb" else {"skill_dim": 3}))
    library = made_library(objective.skills.dim, 4)
    found = answer(objective, "x", POINT, library)
    states = torch.from_numpy(library.states)
    wanted = objective.infer_skill(states, states[:, :1])
    assert wanted is not None
    assert found.how == "inferred"
    np.testing.assert_allclose(found.skill, wanted.numpy(), atol=1e-5)


def test_metra_reaches_a_goal_from_the_initial_states() -> None:
    objective = build("metra", 4, skill_dim=3)
    library = made_library(3, 4)
    goal = np.array([1, 0, 0, 0], np.float32)
    found = answer(objective, goal, POINT, library)
    starts = torch.from_numpy(library.paths[:, 0].copy())
    towards = objective.goal_skill(starts, torch.from_numpy(goal).expand(8, -1))
    assert towards is not None
    mean = towards.detach().numpy().mean(axis=0)
    assert found.how == "inferred"
    np.testing.assert_allclose(found.skill, mean / np.linalg.norm(mean), atol=1e-5)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("x * z", r'position 5: unknown name "z"'),
        (lambda obs: obs, r"one number per observation, shape \(80,\), not \(80, 4\)"),
        (lambda obs: obs[:, 0] / 0, "not finite"),
        (lambda obs: obs.nothing, "failed with AttributeError"),
        (np.zeros(3), "a goal must be 4 finite numbers"),
    ],
)
def test_invalid_prompts(prompt: Any, message: str) -> None:
    objective = build("diayn", 4, skill_dim=3)
    with pytest.raises(UserError, match=message), np.errstate(all="ignore"):
        answer(objective, prompt, POINT, made_library(3, 4))


def test_agents_without_skills_or_library_say_what_is_missing() -> None:
    with pytest.raises(UserError, match="has no skills"):
        answer(build("rnd", 4), "x", POINT, made_library(3, 4))
    with pytest.raises(UserError, match="no library of skills"):
        answer(build("diayn", 4), "x", POINT, no_paths(build("diayn", 4)))


# ---- run folders -----------------------------------------------------------------------------------------------


def test_the_answer_is_a_run_folder(steered: Path, tmp_path: Path) -> None:
    found = cic.prompt(steered, "2 * x - y", out=tmp_path / "right", episodes=2)
    assert found.how == "linear"
    np.testing.assert_allclose(found.skill, np.array([2, -1, 0]) / np.sqrt(5), atol=1e-4)
    agent = cic.load(found.path)
    assert agent.skill is not None
    np.testing.assert_allclose(agent.skill, found.skill, atol=1e-6)
    before, after = cic.load(steered).learner.actor.state_dict(), agent.learner.actor.state_dict()
    assert all(torch.equal(before[name], value) for name, value in after.items()), "nothing is trained"
    returns = cic.evaluate(found.path, episodes=2).returns
    assert list(returns) == ["gridworld => 2 * x - y"]
    assert found.reward == pytest.approx(np.mean(list(returns.values())) / 50, abs=1.5)
    assert json.loads((found.path / "prompt.json").read_text())["how"] == "linear"
    np.testing.assert_array_equal(agent.prompt("-x"), cic.load(steered).prompt("-x"))

    tuned = cic.finetune(found.path, "prompt", steps=200, out=tmp_path / "tuned", quiet=True)
    assert tuned.result["task"] == "gridworld => 2 * x - y"
    np.testing.assert_allclose(tuned.result["skill"], found.skill, atol=1e-6)
    other = cic.finetune(found.path, "reach_top_left", steps=200, out=tmp_path / "other", quiet=True)
    assert other.result["task"] == "gridworld-reach_top_left"


def test_a_prompt_that_was_interrupted_is_still_a_prompt(
    steered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "right"
    with monkeypatch.context() as patch:
        patch.setattr("cic.prompting.write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cic.prompt(steered, "2 * x - y", out=path, episodes=1)
    tuned = cic.finetune(path, "prompt", steps=200, out=tmp_path / "tuned", quiet=True)
    assert tuned.result["task"] == "gridworld => 2 * x - y"


def test_other_prompts_try_the_recorded_skills(steered: Path, tmp_path: Path) -> None:
    found = cic.prompt(steered, "x * y", out=tmp_path / "corner", tries=6, episodes=2)
    assert found.how in ("library", "tried")
    alone = cic.prompt(steered, "x * y", out=tmp_path / "alone", tries=0, episodes=2)
    assert alone.how == "library"
    by_function = cic.prompt(steered, lambda obs: obs[:, 0] * obs[:, 1], out=tmp_path / "function", tries=0, episodes=2)
    assert by_function.skill == alone.skill
    assert by_function.reward == pytest.approx(alone.reward, abs=0.2)  # from other initial states


def test_a_finetuning_on_a_formula_starts_from_the_pre_training(steered: Path, tmp_path: Path) -> None:
    tuned = cic.finetune(steered, "gridworld => x", steps=200, skill=(1.0, 0.0, 0.0), out=tmp_path / "x", quiet=True)
    assert tuned.result["task"] == "gridworld => x"
    with pytest.raises(UserError, match="is a finetuning run"):
        cic.prompt(tuned.path, "x")


def test_the_quantities_of_an_agent() -> None:
    assert [quantity.name for quantity in cic.load("walker").quantities] == ["speed", "upright", "height", "spin"]
    assert NamedQuantity("x", "obs[0]") != POINT[0]


def test_the_command(steered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from cic.cli import main

    out = tmp_path / "prompted"
    assert main(["prompt", str(steered), "x + y", "--out", str(out), "--episodes", "2"]) == 0
    assert f"{out}: mean reward" in capsys.readouterr().out
    assert main(["prompt", str(steered)]) == 0
    assert "obs[0] ** 2 + obs[1] ** 2" in capsys.readouterr().out
    goal = tmp_path / "goal.npy"
    np.save(goal, np.array([1.0, -1.0]))
    assert main(["prompt", str(steered), "--goal", str(goal), "--out", str(tmp_path / "goal"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["how"] in ("library", "tried")
    assert main(["prompt", str(steered), "x + z"]) == 2
    assert 'position 5: unknown name "z"' in capsys.readouterr().err


@pytest.mark.slow
def test_the_answer_is_filmed_and_exported(steered: Path, tmp_path: Path) -> None:
    from cic.cli import main

    out = tmp_path / "prompted"
    assert main(["prompt", str(steered), "x + y", "--out", str(out), "--episodes", "2", "--film"]) == 0
    assert (out / "pictures" / "film.mp4").is_file()
    assert main(["export", str(out), "--format", "torch"]) == 0
    assert (out / "export" / "policy.pt2").is_file()
