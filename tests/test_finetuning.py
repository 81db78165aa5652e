"""Around finetuning: a library at the end of pre-training, the pull, and the check that keeps the better."""

from __future__ import annotations

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
from cic.runs.storage import read_json
from cic.training import finetuning
from cic.training.finetuning import Finetuning, rank_correlation, resolve
from cic.training.library import STATES
from cic.training.loop import Loop

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


def checked(path: Path, tuned: float, copies: int = 1, **settings: Any) -> tuple[Loop, Tape, dict[str, Any]]:
    """A finetuning of a skill that does `SKILL` everywhere, and whose updates end in `tuned`."""
    config = finetune_config(num_envs=copies, steps=100 * copies, warmup=40 * copies, **settings)
    source, tape = api.make_agent(Finetuning, config), Tape()
    constant(source, SKILL)
    phase = Finetuning(config, Inheritance(source.state_dict(), {}))
    agent = WatchedAgent(Drifting(api.make_agent(Finetuning, config), tuned), tape)
    env = WatchedEnv(PayingEnv([1000] * copies), tape)
    loop = make_loop(path, "finetune", config, env, agent, phase)
    return loop, tape, loop.train()


# ---- the check -------------------------------------------------------------------------------------------------


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
def test_the_check_is_decided_by_the_mean_over_starts(
    tmp_path: Path, alone: list[float], tuned: list[float], kept: str
) -> None:
    loop, _, _ = checked(tmp_path / "run", 0.8, check_steps=24)
    assert isinstance(loop.phase, Finetuning)
    loop.phase.checked[:] = np.stack([np.transpose([alone, tuned]), np.ones((3, 2))], axis=2)
    assert loop.phase._keep_the_better()["kept"] == kept


def test_without_a_check_the_tuned_policy_is_kept_and_every_update_made(tmp_path: Path) -> None:
    loop, tape, result = checked(tmp_path / "run", -0.9)
    assert result["kept"] == "tuned"
    assert "checked" not in result
    assert not np.array(tape.reset).any()
    assert loop.updates == 30


def test_from_scratch_nothing_is_checked_and_nothing_pulls(tmp_path: Path) -> None:
    config = finetune_config(steps=100, check_steps=20, pull=1.0)
    tape = Tape()
    env, agent = WatchedEnv(FakeEnv([1000]), tape), WatchedAgent(FakeAgent(), tape)
    result = make_loop(tmp_path / "run", "finetune", config, env, agent).train()
    assert result["kept"] == "tuned"
    assert len(tape.updates) == 30
    assert all("anchor" not in batch.extras for batch in tape.batches)


# ---- the pull --------------------------------------------------------------------------------------------------


def test_the_pull_is_towards_the_skills_action_and_fades(tmp_path: Path) -> None:
    _, tape, _ = checked(tmp_path / "run", 0.1, pull=2.0, pull_updates=10, search_steps=60)
    pulls = [float(batch.extras["pull"]) if batch.extras else 0.0 for batch in tape.batches]
    assert pulls == pytest.approx([2.0] * 10 + [2.0 * (1 - i / 10) for i in range(10)] + [0.0] * 10)
    for batch in tape.batches[:20]:
        np.testing.assert_allclose(batch.extras["anchor"].numpy(), SKILL, rtol=1e-5)


# ---- when the actor starts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "alone"), [(None, 10), (0, 0), (4, 4), (1_000, 30)])
def test_the_critic_learns_alone_for_as_many_updates_as_asked(tmp_path: Path, asked: int | None, alone: int) -> None:
    """By default for those that came due in the search, beyond the warm-up."""
    _, tape, _ = checked(tmp_path / "run", 0.1, search_steps=60, critic_updates=asked)
    assert [actor for _, actor in tape.updates] == [False] * alone + [True] * (30 - alone)


@pytest.mark.parametrize(("right", "start"), [(True, 5), (False, 20)])
def test_the_actor_starts_sooner_once_the_critic_ranks_what_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: bool, start: int
) -> None:
    """`right`: the fake critic values each stored step by what came behind it, or by the opposite."""
    monkeypatch.setattr(finetuning, "ASKED_EVERY", 5)
    monkeypatch.setattr(finetuning, "FOLLOWING", 3)

    class Knowing(Drifting):
        def value(self, obs: np.ndarray, action: np.ndarray, skill: np.ndarray) -> np.ndarray:
            ticks = obs[:, 1].astype(int)  # of the one episode
            followed = [sum(0.99**i * tape.reward[tick + i][0] for i in range(3)) for tick in ticks]
            return np.array(followed) * (1 if right else -1)

    config = finetune_config(steps=100, warmup=40, search_steps=60, critic_rank=0.9, critic_updates=20)
    source, tape = api.make_agent(Finetuning, config), Tape()
    phase = Finetuning(config, Inheritance(source.state_dict(), {}))
    agent = WatchedAgent(Knowing(api.make_agent(Finetuning, config), 0.1), tape)
    make_loop(tmp_path / "run", "finetune", config, WatchedEnv(PayingEnv([1000]), tape), agent, phase).train()
    assert [actor for _, actor in tape.updates].index(True) == start


def test_rank_correlation_is_spearmans() -> None:
    rng = np.random.default_rng(0)
    a = rng.permutation(50).astype(np.float64)
    b = a + rng.normal(0, 10, 50)
    expected = 1 - 6 * np.sum((a - np.argsort(np.argsort(b))) ** 2) / (50 * (50**2 - 1))  # without ties
    assert rank_correlation(a, b) == pytest.approx(expected)
    assert rank_correlation(a, np.exp(a)) == pytest.approx(1)
    assert rank_correlation(a, np.ones(50)) == 0, "nothing to rank"


# ---- the second proposal ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefers_skill", [True, False])
def test_the_critic_picks_between_the_policys_action_and_the_skills_own(tmp_path: Path, prefers_skill: bool) -> None:
    class Judging(Drifting):
        def value(self, obs: np.ndarray, action: np.ndarray, skill: np.ndarray) -> np.ndarray:
            near_skill = -np.abs(action[:, 0] - SKILL)
            return near_skill if prefers_skill else -near_skill

    config = finetune_config(steps=100, warmup=40, second_proposal=True)
    source, tape = api.make_agent(Finetuning, config), Tape()
    constant(source, SKILL)
    phase = Finetuning(config, Inheritance(source.state_dict(), {}))
    agent = WatchedAgent(Judging(api.make_agent(Finetuning, config), -0.9), tape)
    make_loop(tmp_path / "run", "finetune", config, WatchedEnv(PayingEnv([1000]), tape), agent, phase).train()
    first = tape.updates[0][0] + 1  # from the step after the first update on
    acted = np.array(tape.action[first:])[:, 0]
    if prefers_skill:
        np.testing.assert_allclose(acted, SKILL, rtol=1e-5)  # without noise
    else:
        assert (np.abs(acted - SKILL) > 0.3).all()


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
    with pytest.raises(UserError, match="the library takes 200 steps, the run has 200"):
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
    tried = read_json(after / "trials.json")
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
