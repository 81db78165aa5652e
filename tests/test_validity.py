"""Validity checks: each sign against numbers computed by hand, and when a sign becomes a problem of the run."""

from __future__ import annotations

import math
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from agent_setup import make_agent
from fakes import make_loop, pretrain_config

from cic.core.types import Batch
from cic.learning.diagnosis import share_of_skill, state_of_policy, state_of_representation
from cic.report.collapse import is_sound
from cic.runs import records
from cic.training.validity import LASTING, Problems, general, observation_scale

GOOD = {
    "reward/intrinsic": 1.0,
    "reward/std": 0.3,
    "embedding/effective_rank": 8.0,
    "skill/information": 0.3,
    "action/saturation": 0.2,
    "action/skill_share": 0.1,
    "critic/q": 30.0,
    "obs/largest": 10.0,
    "obs/smallest": 0.1,
}


def names(**numbers: float) -> set[str]:
    given = GOOD | {name.replace("__", "/"): value for name, value in numbers.items()}
    return {*general(given, peak=1.3, discount=0.97), *observation_scale(given)}


def test_a_good_run_shows_no_sign() -> None:
    assert names() == set()
    assert general({}, 0.0, 0.97) == {}
    assert observation_scale({}) == {}


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("no reward", {"reward__intrinsic": -2e-5, "reward__std": 5e-5}),
        ("constant reward", {"reward__intrinsic": 4.0, "reward__std": 3e-3}),
        ("collapsed embedding", {"embedding__effective_rank": 1.3}),
        ("skills at chance", {"skill__information": -0.02}),
        ("saturated actions", {"action__saturation": 0.9}),
        ("skills without effect", {"action__skill_share": 1e-6}),
        ("diverging Q", {"critic__q": -10.5 * 1.3 / 0.03}),
        ("unscaled observations", {"obs__largest": 1e4}),
        ("unscaled observations", {"obs__largest": 5e-4, "obs__smallest": 4e-4}),
        ("unscaled observations", {"obs__largest": 2.0, "obs__smallest": 1e-3}),
    ],
)
def test_each_sign(name: str, numbers: dict[str, float]) -> None:
    assert names(**numbers) == {name}


def test_q_values_below_the_bound_are_not_reported() -> None:
    assert names(critic__q=9.5 * 1.3 / 0.03) == set()


# ---- from sign to problem ----------------------------------------------------------------------------------------

BAD = GOOD | {"action/saturation": 1.0}


def test_a_sign_that_lasts_is_reported_once_and_removed_if_it_disappears() -> None:
    problems = Problems(0.97)
    new = [problems.update(BAD, {}, step, 0.5) for step in range(1, 6)]
    assert [len(messages) for messages in new] == [0, 0, 1, 0, 0]
    assert new[2][0].endswith("(step 3)")
    for step in range(LASTING):
        assert problems.found, step
        problems.update(GOOD, {}, 10, 0.9)
    assert problems.found == {}


def test_nothing_is_expected_of_the_first_tenth() -> None:
    problems = Problems(0.97)
    for step in range(10):
        assert problems.update(BAD, {}, step, 0.05) == []
    assert problems.found == {}


def test_an_objective_can_exclude_checks_and_add_its_own() -> None:
    problems = Problems(0.97, frozenset({"saturated actions"}))
    for step in range(LASTING):
        problems.update(BAD, {"own": "bad"}, step, 0.5)
    assert problems.found == {"own": "bad (step 2)"}


def test_the_state_resumes() -> None:
    one, other = Problems(0.97), Problems(0.97)
    one.update(BAD, {}, 1, 0.5)
    other.restore(one.state())
    for problems in (one, other):
        problems.update(BAD, {}, 2, 0.5)
        problems.update(BAD, {}, 3, 0.5)
    assert one.state() == other.state()
    assert other.found
    for wrong in (
        {},
        one.state() | {"lines": {"x": 7}},
        one.state() | {"peak": math.nan},
        [],
        one.state() | {"found": 1},
    ):
        with pytest.raises(Exception, match="problems"):
            other.restore(wrong)


# ---- the metrics -------------------------------------------------------------------------------------------------


def batch(rows: int, obs: int, skill: int, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    draw = lambda width: torch.from_numpy(rng.standard_normal((rows, width)).astype(np.float32))  # noqa: E731
    return Batch(draw(obs), draw(2), draw(1), torch.ones(rows, 1), draw(obs), draw(skill).abs())


def test_metrics_of_the_policy_are_those_of_numpy() -> None:
    agent = make_agent("cic", skill_dim=4)
    given = batch(64, 3, 4)
    given.obs[:, 0] = 0
    found = state_of_policy(agent, given, skills=True)
    obs, skill = given.obs.numpy(), given.skill.numpy()
    action = agent.act(obs, skill)
    other = agent.act(obs, np.roll(skill, 1, axis=0))
    share = ((action - other) ** 2).sum(1).mean() / 2 / action.var(axis=0).sum()
    size = np.sqrt((obs**2).mean(axis=0))
    assert float(found["action/skill_share"]) == pytest.approx(share, rel=1e-4)
    assert float(found["action/saturation"]) == np.mean(np.abs(action) > 1 - 1e-5)
    assert float(found["obs/largest"]) == pytest.approx(size.max(), rel=1e-5)
    assert float(found["obs/smallest"]) == pytest.approx(size[1:].min(), rel=1e-5)
    assert "action/skill_share" not in state_of_policy(agent, given, skills=False)


def test_a_policy_that_depends_on_the_skill_alone_has_share_one() -> None:
    skills = torch.randn(4000, 3, generator=torch.Generator().manual_seed(0))
    assert float(share_of_skill(skills, skills.roll(1, 0))) == pytest.approx(1, abs=0.05)
    assert float(share_of_skill(skills, skills)) == 0


def test_information_is_that_of_the_discriminator() -> None:
    agent = make_agent("diayn", skill_dim=4)
    skill = torch.eye(4)[torch.arange(32) % 4]
    given = batch(32, 3, 4)._replace(skill=skill)
    logits = agent.objective.classifier(given.next_obs).detach().numpy().astype(np.float64)
    log_q = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = 1 + np.mean(log_q[np.arange(32), np.arange(32) % 4]) / np.log(4)
    assert float(state_of_representation(agent.objective, given)["skill/information"]) == pytest.approx(
        expected, abs=1e-5
    )


@pytest.mark.parametrize("kl", [0.04, 0.06])
def test_a_vae_without_information_is_reported(kl: float) -> None:
    objective = make_agent("smm").objective
    assert set(objective.problems({"density/kl": kl})) == ({"VAE without information"} if kl < 0.05 else set())


def test_a_constant_reward_is_no_problem_of_the_method_that_has_it(tmp_path: Path) -> None:
    result = make_loop(tmp_path / "run", "pretrain", pretrain_config(objective="fixed", steps=200)).train()
    assert result["problems"] == {}


@pytest.mark.filterwarnings("ignore:the intrinsic reward")
def test_the_result_lists_the_problems(tmp_path: Path) -> None:
    """Fixed with a reward that does not vary, and no exemption."""
    loop = make_loop(tmp_path / "run", "pretrain", pretrain_config(objective="fixed", steps=200))
    loop.problems.exempt = frozenset()
    assert loop.train()["problems"].keys() == {"constant reward"}


def test_sound_runs_in_the_tables_are_not_reported_and_collapsed_ones_are() -> None:
    """The counts in results/validity/README.md."""
    folder = Path(__file__).parents[1] / "results" / "validity"
    counted = runpy.run_path(str(folder / "counts.py"))["count"]()
    reported = {kind: {name: n for name, n in row.items() if name != "runs"} for kind, row in counted.items()}
    assert counted["pretrain", "CIC, sound"]["runs"] == 98
    assert reported["pretrain", "CIC, sound"] == {}
    assert reported["pretrain", "CIC, collapsed"] == {"collapsed embedding": 42, "no reward": 3}
    expected = {"CIC, collapsed", "Disagreement", "SMM"}
    assert {kind for (_, kind), row in reported.items() if row} == expected
    assert sum(row["runs"] for (kind, _), row in counted.items() if kind == "finetune") == 674


@pytest.mark.parametrize(
    ("problems", "failed"),
    [({"unscaled observations": "…"}, ()), ({"unscaled observations": "…", "no reward": "…"}, ("no reward",))],
)
def test_advice_does_not_make_a_run_unsound(problems: dict[str, str], failed: tuple[str, ...], tmp_path: Path) -> None:
    make_loop(tmp_path / "run", "pretrain", pretrain_config(objective="fixed", steps=200)).train()
    run = replace(records.read([tmp_path / "run"])[0][0], result={"problems": problems})
    assert run.failed_checks == failed
    assert is_sound(run, {}) is not bool(failed)
