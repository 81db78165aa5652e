"""Around finetuning: the library at the end of pre-training, critic updates, and the comparison at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import FakeAgent, FakeEnv, Part, Tape, WatchedAgent, WatchedEnv, finetune_config, make_loop, pretrain_config

import cic
from cic import api
from cic.core.errors import UserError
from cic.learning.objectives import get_objective
from cic.runs.folder import Inheritance, Run
from cic.training.finetuning import compare, resolve
from cic.training.library import STATES
from cic.training.loop import Loop
from cic.training.script import Cursor, Segment

SKILL = 0.5


class PayingEnv(FakeEnv):
    """Pays the first action."""

    def paid(self, actions: np.ndarray) -> np.ndarray:
        return np.tile(actions[:, 0], (3, 1))


class Drifting(Part):
    """An agent whose every update leaves the policy at the same action."""

    def __init__(self, agent: Any, value: float) -> None:
        super().__init__(agent)
        self._value = value

    def update(self, *batches: Any, **options: Any) -> Any:
        metrics = self._part.update(*batches, **options)
        constant(self._part, self._value)
        return metrics


def constant(agent: Any, value: float) -> None:
    last = agent.learner.actor.head[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.fill_(float(np.arctanh(value)))


def checked(path: Path, tuned: float, copies: int = 1, **settings: Any) -> tuple[Loop[Any], Tape, dict[str, Any]]:
    """A finetuning of a skill that does `SKILL` everywhere, and whose updates end in `tuned`."""
    config = finetune_config(num_envs=copies, steps=100 * copies, warmup=40 * copies, **settings)
    source, tape = api.make_agent(config), Tape()
    constant(source, SKILL)
    agent = WatchedAgent(Drifting(api.make_agent(config), tuned), tape)
    env = WatchedEnv(PayingEnv([1000] * copies), tape)
    loop = make_loop(path, "finetune", config, env, agent, inherited=Inheritance(source.state_dict(), {}))
    return loop, tape, loop.train()


# ---- the comparison --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize(("tuned", "kept"), [(-0.9, "skill"), (0.8, "tuned")])
def test_the_better_of_skill_and_tuned_policy_is_kept(tmp_path: Path, tuned: float, kept: str, copies: int) -> None:
    _, tape, result = checked(tmp_path / "run", tuned, copies, check_steps=24 * copies)
    assert result["kept"] == kept
    assert result["checked"]["skill"] == pytest.approx([SKILL] * 3, rel=1e-5)
    assert result["checked"]["tuned"] == pytest.approx([tuned] * 3, rel=1e-5)
    assert result["checked"]["steps"] == 12 * copies, "the second half of each part"
    alone = np.arange(24) // 4 % 2 == 0
    np.testing.assert_allclose(np.array(tape.action[76:])[alone], SKILL, rtol=1e-5)
    np.testing.assert_allclose(np.array(tape.action[76:])[~alone], tuned, rtol=1e-5)
    expected = SKILL if kept == "skill" else tuned
    saved = cic.load(tmp_path / "run").act(np.zeros((1, 2), np.float32))
    np.testing.assert_allclose(saved, expected, rtol=1e-5)
    assert np.array(tape.reset)[:, 0].nonzero()[0].tolist() == [75, 79, 83, 87, 91, 95], "each part an episode"
    assert tape.seeds[::2] == tape.seeds[1::2], "from starts that are the same for both"
    assert len(set(tape.seeds)) == 3
    assert max(tick for tick, _ in tape.updates) < 76, "what is checked does not change"


@pytest.mark.parametrize(
    ("alone", "tuned", "kept"),
    [([1, 2, 3], [0, 3, 4], "tuned"), ([1, 2, 3], [3, 1, 1], "skill"), ([0, 0, 0], [0, 0, 0], "skill")],
)
def test_the_comparison_is_decided_by_the_mean_over_starts(
    tmp_path: Path, alone: list[float], tuned: list[float], kept: str
) -> None:
    config = finetune_config(steps=100, check_steps=24)
    loop = make_loop(tmp_path / "run", "finetune", config, FakeEnv([1000]), FakeAgent())
    script = compare(loop, np.zeros(4, np.float32), torch.nn.Identity(), 76)
    outcomes = [value for pair in zip(alone, tuned, strict=True) for value in pair]
    cursor = Cursor(script)
    for mean in outcomes:
        segment = cursor.current
        assert isinstance(segment, Segment)
        assert (segment.skip, segment.act, segment.train) == (2, "mean", "none")
        cursor.finish({"steps": 4, "reward": 2.0 * mean})
    assert cursor.current is None
    assert cursor.result == {"kept": kept, "checked": {"skill": alone, "tuned": tuned, "steps": 12}}


def test_without_a_check_the_tuned_policy_is_kept_and_every_update_made(tmp_path: Path) -> None:
    loop, tape, result = checked(tmp_path / "run", -0.9)
    assert result["kept"] == "tuned"
    assert "checked" not in result
    assert not np.array(tape.reset).any()
    assert loop.updates == 30


def test_from_scratch_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    config = finetune_config(steps=100, check_steps=20)
    tape = Tape()
    env, agent = WatchedEnv(FakeEnv([1000]), tape), WatchedAgent(FakeAgent(), tape)
    result = make_loop(tmp_path / "run", "finetune", config, env, agent).train()
    assert result["kept"] == "tuned"
    assert len(tape.updates) == 30


# ---- when the actor starts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "alone"), [(None, 10), (0, 0), (4, 4), (1_000, 30)])
def test_the_critic_learns_alone_for_as_many_updates_as_asked(tmp_path: Path, asked: int | None, alone: int) -> None:
    """By default for those that came due in the search, beyond the warm-up."""
    _, tape, _ = checked(tmp_path / "run", 0.1, search_steps=60, critic_updates=asked)
    assert [actor for _, actor in tape.updates] == [False] * alone + [True] * (30 - alone)


# ---- the library -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("starts", [1, 2])
@pytest.mark.parametrize("copies", [1, 3])
def test_the_end_of_pretraining_is_a_library(tmp_path: Path, copies: int, starts: int) -> None:
    """Without noise or updates, each skill from the start of some episodes, for as long as it was asked."""
    library = {"library": 3 * copies, "library_starts": starts, "library_steps": 20}
    config = pretrain_config(num_envs=copies, steps=(140 + 60 * starts) * copies, **library)
    tape = Tape()
    env, agent = WatchedEnv(FakeEnv([1000] * copies), tape), WatchedAgent(FakeAgent(), tape)
    make_loop(tmp_path / "run", "pretrain", config, env, agent).train()
    found = Run(tmp_path / "run").library()
    assert found["skills"].shape == (3 * copies * starts, 4)
    assert found["paths"].shape == (3 * copies * starts, STATES, 2)
    rounds = 3 * starts
    assert [i for i, reset in enumerate(tape.reset) if reset.any()] == [139 + 20 * i for i in range(rounds + 1)]
    ends = [copy * 100 + 2 + part for part in range(rounds) for copy in range(copies)]
    assert sorted(found["paths"][:, 0, 0].tolist()) == sorted(ends), "who it was and in which episode"
    np.testing.assert_array_equal(found["paths"][:, 0, 1], 0)
    np.testing.assert_array_equal(found["paths"][:, -1, 1], 20)
    skills, episodes = np.unique(found["skills"], axis=0, return_inverse=True)
    assert len(skills) == 3 * copies
    for skill in range(len(skills)):
        who, episode = np.divmod(np.sort(found["paths"][episodes.reshape(-1) == skill, 0, 0]) - 2, 100)
        assert len(who) == starts
        assert len(set(who)) == 1, "of one copy"
        np.testing.assert_array_equal(episode, episode[0] + np.arange(starts), "one after another")
    assert max(tape.acted) < 140, "nothing explores there"
    assert max(tick for tick, _ in tape.updates) < 140


def test_without_it_the_last_skills_of_the_training_are_the_library(tmp_path: Path) -> None:
    make_loop(tmp_path / "run", "pretrain", pretrain_config(steps=200), FakeEnv([1000]), FakeAgent()).train()
    found = Run(tmp_path / "run").library()
    assert len(found["skills"]) > 5
    assert (found["paths"][:, -1, 1] - found["paths"][:, 0, 1] == FakeAgent().objective.skills.every).all()


def test_a_library_that_takes_all_steps_is_refused() -> None:
    with pytest.raises(UserError, match="the library takes 200 steps and the run 200"):
        pretrain_config(steps=200, library=5, library_starts=2, library_steps=20)


@pytest.mark.usefixtures("short_regressions")
def test_a_finetuning_finds_the_library_of_its_pretraining(tmp_path: Path) -> None:
    small = {"scale": "smoke", "hidden": 16, "batch": 16, "warmup": 40, "quiet": True}
    before = cic.pretrain(
        "gridworld",
        out=tmp_path / "before",
        steps=400,
        skill_dim=4,
        library=5,
        library_starts=2,
        library_steps=20,
        **small,
    ).path
    own = {"search": "library", "steps": 60, "trial_steps": 5, "eval_episodes": 1}
    after = cic.finetune(before, "gridworld-reach_top_left", out=tmp_path / "after", **own, **small).path
    inherited = Run(after).inherited()
    assert inherited is not None
    np.testing.assert_array_equal(inherited.library["paths"], Run(before).library()["paths"])
    tried = json.loads((after / "trials.json").read_text())
    assert [trial["steps"] for trial in tried["trials"]] == [5] * 8
    assert len({tuple(trial["skill"]) for trial in tried["trials"][2:]}) == 2, "finalists, from three starts each"
    known = inherited.library["skills"].tolist()
    assert all(trial["skill"] in known for trial in tried["trials"])


# ---- what auto means -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "found"), [("cic", "grid"), ("diayn", "each"), ("aps", "regress"), ("apt", "fixed"), ("smm", "each")]
)
def test_auto_takes_what_the_paper_does(objective: str, found: str) -> None:
    cls = get_objective(objective)
    made = cls(FakeAgent.spaces, 16, cls.Options())
    assert resolve("auto", made) == resolve("paper", made) == found
    assert resolve("random", made) == "random"
