"""Zero-shot: labelled states, the skills they name, goals, and what is said when they cannot be."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import steady
from hypothesis import given, settings
from hypothesis import strategies as st

import cic
from cic import api, cli, envs
from cic.core.errors import UserError
from cic.core.types import Spaces
from cic.learning.agent import Agent, build_agent
from cic.learning.learners import get_learner
from cic.learning.objectives import get_objective
from cic.learning.replay import Replay
from cic.training.evaluation import plane_cells
from cic.training.zero_shot import Labelled, fresh_states, infer_skill, reach_goals, replayed_states

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 16, "batch": 16, "warmup": 60, "quiet": True}
TASKS = envs.domains()["gridworld"].tasks


def small_agent(objective: str = "visr", spaces: Spaces = Spaces(2, 2)) -> Agent:  # noqa: B008  a tuple
    options = get_objective(objective).Options()
    return build_agent(spaces, objective, options, "ddpg", get_learner("ddpg").Config(hidden=8, batch=8))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inference") / "visr"
    return cic.pretrain("gridworld", "visr", out=path, steps=1_000, num_envs=2, **SMALL).path


# ---- labelled states -------------------------------------------------------------------------------------------


@given(st.integers(1, 3), st.integers(3, 40), st.integers(1, 60), st.integers(2, 9))
@settings(steady, max_examples=25)
def test_replayed_states_carry_the_reward_of_each_task_for_reaching_them(
    copies: int, steps: int, count: int, length: int
) -> None:
    agent = small_agent()
    replay = Replay(agent.spaces, agent.objective.skills.dim, 50 * copies, copies, nstep=1, tasks=2)
    skill = agent.objective.skills.sample(copies, np.random.default_rng(0))
    zeros, never = np.zeros(copies, np.float32), np.zeros(copies, bool)
    for step in range(steps):  # the observation counts steps; a task pays the number of the state that is reached
        obs = np.tile(np.float32([step, 0]), (copies, 1))
        paid = np.tile(np.float32([step + 1, -step - 1]), (copies, 1))
        replay.add(obs, skill, np.zeros((copies, 2), np.float32), zeros, never, task_rewards=paid)
        if (step + 1) % length == 0:
            replay.finish(obs + 1, ~never)
    found = replayed_states(replay.state(), ("up", "down"), count, seed=0)
    assert found is not None
    assert len(found.next_obs) >= min(count, steps - copies, 40)
    assert len(found.next_obs) == len(found.rewards["up"]) == len(found.rewards["down"]) <= count
    np.testing.assert_array_equal(found.next_obs[:, :1], found.rewards["up"])
    np.testing.assert_array_equal(found.next_obs[:, :1], -found.rewards["down"])


def test_fresh_states_are_as_many_as_asked_and_rewarded_by_every_task() -> None:
    env = envs.make("gridworld", num_envs=3, seed=1)
    found = fresh_states(small_agent(), env, 100, seed=1)
    again = fresh_states(small_agent(), env, 100, seed=1)
    assert found.next_obs.shape == (100, 2)
    assert {name: rewards.shape for name, rewards in found.rewards.items()} == dict.fromkeys(TASKS, (100, 1))
    np.testing.assert_array_equal(found.next_obs, again.next_obs)


def test_the_skill_of_a_task_is_what_the_method_infers() -> None:
    agent = small_agent()
    rng = np.random.default_rng(0)
    labelled = Labelled(rng.random((40, 2), np.float32), {"a": rng.random((40, 1), np.float32)})
    skill = infer_skill(agent, labelled, "a")
    inputs = torch.from_numpy(labelled.next_obs), torch.from_numpy(labelled.rewards["a"])
    np.testing.assert_array_equal(skill, agent.objective.infer_skill(*inputs).numpy())


def test_constant_rewards_and_rewards_that_name_no_skill_get_a_sentence() -> None:
    states = np.zeros((9, 2), np.float32)
    with pytest.raises(UserError, match=r"^no skill can be inferred: the reward of a is 2 at all 9 labelled states"):
        infer_skill(small_agent(), Labelled(states, {"a": np.full((9, 1), 2, np.float32)}), "a")
    varied = np.arange(9, dtype=np.float32)[:, None]
    with pytest.raises(UserError, match=r"^no skill can be inferred from the rewards of a at 9 labelled states"):
        infer_skill(small_agent("csf"), Labelled(states, {"a": varied}), "a")


# ---- by the verbs and the command line -------------------------------------------------------------------------


def test_inference_on_every_task(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = api.infer(run, 1_000, episodes=2)
    assert set(found.returns) == set(TASKS)
    assert all(len(returns) == 2 for returns in found.returns.values())
    assert api.infer(run, 1_000, episodes=2) == found
    assert cli.main(["evaluate", str(run), "--infer", "1000", "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["returns"] == found.returns


def test_without_its_replay_fresh_states_are_labelled(run: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(run, bare)
    newest = sorted((bare / "checkpoints").iterdir())[-1]
    (bare / "milestones").mkdir(exist_ok=True)
    newest.rename(bare / "milestones" / newest.name)
    shutil.rmtree(bare / "checkpoints")
    with pytest.raises(
        UserError, match=r"the reward of \w+ is 0 at all 7 labelled states"
    ):  # fresh ones, near the start
        api.infer(bare, 7, episodes=1)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--infer", "0"], "--infer must be at least 1, not 0"),
        (["--infer", "1"], "no skill can be inferred: the reward of reach_top_left is .* at all 1 labelled states"),
        (["--goals", "0"], "--goals must be at least 1, not 0"),
        (["--goals", "3"], "this method has no skill for a goal: choose a run of metra, lsd, csf, fb or hilp"),
        (["--goals", "3", "--infer", "3"], "--skill, --infer and --goals exclude each other"),
    ],
)
def test_what_cannot_be_done_gets_one_sentence(
    run: Path, flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", str(run), "--episodes", "1", *flags]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.match(f"cic: {sentence}", said)


def test_a_method_that_infers_nothing_is_reported(tmp_path: Path) -> None:
    path = cic.pretrain("gridworld", "diayn", out=tmp_path / "diayn", steps=80, **SMALL).path
    with pytest.raises(UserError, match=r"^DIAYN cannot infer a skill from rewards"):
        api.infer(path, 10)


# ---- goals and cells -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["metra", "fb"])
def test_goals_lie_in_the_plane_and_distances_are_those_of_the_path(method: str, tmp_path: Path) -> None:
    path = cic.pretrain("gridworld", method, out=tmp_path / method, steps=80, **SMALL).path
    found = api.reach(path, 12, seed=3)
    assert found.goals.shape == (12, 2)
    assert (np.abs(found.goals) <= 1).all()
    assert found.radius == pytest.approx(0.1)
    assert (found.nearest <= found.last).all()
    assert (found.last <= math.sqrt(8) + 1e-6).all()
    assert (api.reach(path, 12, seed=3).last == found.last).all()


def test_an_environment_without_a_plane_is_reported() -> None:
    env = envs.make("walker", num_envs=2)
    with pytest.raises(UserError, match=r"^walker has no plane for goals: choose a run in point_mass, gridworld"):
        reach_goals(small_agent("metra", Spaces(24, 6)), env, 0)


@given(
    st.lists(st.tuples(st.floats(-30, 30), st.floats(-30, 30)), min_size=1, max_size=40), st.sampled_from([0.5, 1.0])
)
@settings(steady, max_examples=50)
def test_cells_of_the_plane_are_counted_once(points: list[tuple[float, float]], side: float) -> None:
    where = np.array(points, np.float32)
    observations = np.concatenate([np.full((len(points), 1), 7, np.float32), where], axis=1)
    cells = {(math.floor(float(x) / side), math.floor(float(y) / side)) for x, y in where}
    half = len(points) // 2
    parts = [part for part in (observations[:half], observations[half:]) if len(part)]
    assert plane_cells(parts, (1, 2), side) == len(cells)
