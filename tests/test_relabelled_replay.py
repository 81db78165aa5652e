"""What pre-training saw, paid by the task: the steps, their rewards, and their share of a batch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cic
from cic.core.errors import UserError
from cic.core.types import Spaces
from cic.learning.replay import Replay
from cic.runs.folder import Run
from cic.training import relabelled_replay
from cic.training.relabelled_replay import RelabelledReplay, latest_steps
from cic.training.reward_model import fitted, held_out_r2, standardiser
from cic.training.settings import finetune_defaults

GAMMA = 0.9
SPACES = Spaces(obs=3, action=1)
SMALL: dict[str, Any] = {"scale": "smoke", "quiet": True, "hidden": 16, "batch": 16}


def lived(lengths: list[list[int]], capacity: int, ends: bool) -> Replay:
    """Copies that live through episodes of these lengths; observations are (copy, episode, time)."""
    copies = len(lengths)
    replay = Replay(SPACES, 1, capacity * copies, copies, nstep=1, gamma=GAMMA)
    episode, time = np.zeros(copies, np.int64), np.zeros(copies, np.int64)
    for _ in range(max(sum(each) for each in lengths)):
        obs = np.stack([np.arange(copies), episode, time], axis=1).astype(np.float32)
        time += 1
        done = np.array([time[c] == lengths[c][episode[c] % len(lengths[c])] for c in range(copies)])
        action, zeros = obs.sum(axis=1, keepdims=True), np.zeros(copies, np.float32)
        replay.add(obs, np.zeros((copies, 1), np.float32), action, zeros, done & ends)
        if done.any():
            replay.finish(np.stack([np.arange(copies), episode, time], axis=1).astype(np.float32), done)
            episode[done] += 1
            time[done] = 0
    return replay


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=3),
    st.integers(5, 40),
    st.integers(1, 4),
    st.booleans(),
)
def test_only_what_happened_is_sampled_and_all_of_it(
    lengths: list[list[int]], capacity: int, nstep: int, ends: bool
) -> None:
    replay = lived(lengths, capacity, ends)
    steps = latest_steps(replay.state())
    assert len(steps["obs"]) == len(replay)
    other = Replay.from_steps(**steps, skill_dim=2, nstep=nstep, gamma=GAMMA)
    starts = np.flatnonzero(other.valid)
    batch = other.gather(starts)
    copy, episode, time = batch.obs.numpy().T.astype(int)
    np.testing.assert_array_equal(batch.next_obs.numpy(), np.stack([copy, episode, time + nstep], axis=1))
    np.testing.assert_array_equal(batch.action.numpy()[:, 0], copy + episode + time)
    length = np.array([lengths[c][e % len(lengths[c])] for c, e in zip(copy, episode, strict=True)], int)
    expected = np.where(ends & (time + nstep == length), 0.0, GAMMA**nstep)
    np.testing.assert_allclose(batch.discount.numpy()[:, 0], expected, rtol=1e-6)
    held = {tuple(row) for row in steps["obs"].astype(int)}
    possible = {row for row in held if all((row[0], row[1], row[2] + i) in held for i in range(1, nstep + 1))}
    assert {tuple(row) for row in batch.obs.numpy().astype(int)} == possible


def test_of_a_long_life_the_latest_steps_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relabelled_replay, "LATEST", 20)
    steps = latest_steps(lived([[7], [5]], 100, False).state())
    whole = lived([[7], [5]], 100, False)
    assert len(steps["obs"]) <= 20
    assert steps["obs"][-1].tolist() == whole.obs.reshape(2, 100, 3)[1, whole.written[1] - 1].tolist()


def random_steps(count: int = 4_000) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(count, 3)).astype(np.float32) * [1, 10, 100]
    final = np.arange(count) % 50 == 49
    action = rng.uniform(-1, 1, (count, 1)).astype(np.float32)
    return {
        "obs": obs.astype(np.float32),
        "action": action,
        "terminated": np.zeros(count, np.bool_),
        "episode_end": final,
    }


def paid(obs: Any) -> Any:
    """A reward that follows from the observation, in odd units."""
    return 1000 + 50 * np.tanh(obs[..., 0] + obs[..., 2] / 100)


def no_action(count: int) -> Any:
    return np.zeros((count, 1), np.float32)


def transitions(count: int = 2_000) -> tuple[Any, Any, Any]:
    """Independent observations and actions."""
    rng = np.random.default_rng(1)
    obs, next_obs = ((rng.normal(size=(count, 3)) * [1, 10, 100]).astype(np.float32) for _ in range(2))
    return obs, rng.uniform(-1, 1, (count, 1)).astype(np.float32), next_obs


def test_a_reward_of_the_next_state_is_predicted_from_it_alone() -> None:
    """As before there was a guard, so that seeds stay bit-exact."""
    steps, (obs, action, next_obs) = random_steps(), transitions()
    known = RelabelledReplay(steps, SPACES, 2, nstep=3, gamma=GAMMA)
    known.label(obs, action, next_obs, paid(next_obs), seed=0)
    standardised = standardiser(steps["obs"])
    predict = fitted(standardised(next_obs), paid(next_obs), relabelled_replay.UPDATES, 0)
    np.testing.assert_array_equal(known.replay.reward[:-1], predict(standardised(steps["obs"][1:])).astype(np.float32))
    assert known.r2 > 0.9


def test_a_reward_that_depends_on_the_action_is_not_used() -> None:
    """Half of its variance follows from the next observation."""
    obs, action, next_obs = transitions()
    known = RelabelledReplay(random_steps(), SPACES, 2, nstep=1, gamma=GAMMA)
    after = np.tanh(next_obs[:, 0])
    known.label(obs, action, next_obs, after / after.std() + action[:, 0] / action.std(), seed=0)
    assert 0.3 < known.r2 < relabelled_replay.GOOD_R2
    assert not known.usable
    other = RelabelledReplay(random_steps(), SPACES, 2, nstep=1, gamma=GAMMA)
    other.restore(known.state())
    assert (other.r2, other.known, other.usable) == (known.r2, known.known, False)


def test_a_noisy_reward_of_the_next_state_is_used() -> None:
    obs, action, next_obs = transitions()
    known = RelabelledReplay(random_steps(), SPACES, 2, nstep=1, gamma=GAMMA)
    noise = np.random.default_rng(5).normal(size=len(obs))
    known.label(obs, action, next_obs, np.tanh(next_obs[:, 0]) + 0.4 * noise, seed=0)
    assert 0.3 < known.r2 < relabelled_replay.GOOD_R2
    assert known.usable


def test_constant_rewards_are_not_used_until_they_differ() -> None:
    obs, action, next_obs = transitions(400)
    known = RelabelledReplay(random_steps(), SPACES, 2, nstep=1, gamma=GAMMA)
    assert known.label(obs, action, next_obs, np.full(400, 7.0), seed=0) == "all rewards so far are equal"
    assert not known.usable
    assert known.label(obs, action, next_obs, paid(next_obs), seed=0) == ""
    assert known.usable


def test_data_below_the_own_rewards_are_not_used() -> None:
    """The pre-training's states have less of the rewarded entry than the finetuning's latest steps."""
    steps = random_steps()
    obs, action, next_obs = transitions()
    known = RelabelledReplay(steps, SPACES, 2, nstep=1, gamma=GAMMA)
    reward = np.tanh(next_obs[:, 0])
    best = np.quantile(np.tanh(steps["obs"][:, 0]), relabelled_replay.BEST)
    assert known.label(obs, action, next_obs, reward, 0, reward) == ""
    assert known.usable
    assert known.label(obs, action, next_obs, reward, 0, np.full(10, best - 0.1)) == ""
    reason = known.label(obs, action, next_obs, reward, 0, np.full(10, best + 0.1))
    assert reason.startswith("the pre-training did not reach what the task needs: 99% of its steps have a reward below")
    assert not known.usable


def test_r2_is_that_of_held_out_blocks() -> None:
    obs, _, next_obs = transitions(400)
    reward = paid(next_obs).astype(np.float64)
    states = standardiser(obs)(next_obs)
    held = np.zeros(400, np.bool_)
    for start in range(80, 400, 100):
        held[start : start + 20] = True
    predicted = fitted(states[~held], reward[~held], 50, 3)(states[held])
    expected = 1 - np.mean((reward[held] - predicted) ** 2) / np.var(reward)
    assert held_out_r2(states, reward, 50, 3) == pytest.approx(expected, rel=1e-6)
    assert held_out_r2(states, np.full(400, 7.0), 50, 3) == 1.0


def test_rewards_are_the_predictions_for_the_next_observation() -> None:
    steps, rng = random_steps(), np.random.default_rng(1)
    known = RelabelledReplay(steps, SPACES, 2, nstep=3, gamma=GAMMA)
    seen = (rng.normal(size=(3_000, 3)) * [1, 10, 100]).astype(np.float32)
    known.label(seen[::-1], no_action(3_000), seen, paid(seen), seed=0)
    assert known.usable
    starts = np.flatnonzero(known.replay.valid)
    batch = known.replay.gather(starts)
    expected = sum(GAMMA**i * paid(steps["obs"][starts + i + 1]) for i in range(3))
    error = batch.reward.numpy()[:, 0] - expected
    assert np.sqrt(np.mean(error**2)) < 0.15 * expected.std()
    assert known.replay.skills.shape[1] == batch.skill.shape[1] == 2


def test_a_constant_reward_is_that_constant_and_invalid_numbers_are_left_out() -> None:
    known = RelabelledReplay(random_steps(), SPACES, 2, nstep=1, gamma=GAMMA)
    seen = np.zeros((10, 3), np.float32)
    known.label(seen, no_action(10), seen, np.where(np.arange(10) < 3, np.nan, 7.0), seed=0)
    np.testing.assert_allclose(known.replay.reward[:-1], 7.0)
    known.label(*[np.zeros((20, 3), np.float32)] * 3, np.full(20, np.nan), seed=0)
    np.testing.assert_allclose(known.replay.reward[:-1], 7.0)


def test_it_is_recomputed_when_the_labelled_data_grows_by_half() -> None:
    known = RelabelledReplay(random_steps(), SPACES, 2, nstep=1, gamma=GAMMA)
    assert known.due(1)
    zeros = np.zeros((100, 3), np.float32)
    known.label(zeros, no_action(100), zeros, np.zeros(100, np.float32), seed=0)
    assert not known.due(149)
    assert known.due(150)


@pytest.mark.parametrize("change", ["obs", "action", "terminated", "missing", "nan", "short"])
def test_steps_that_do_not_fit_are_refused(change: str) -> None:
    steps = random_steps(60)
    if change == "missing":
        del steps["episode_end"]
    elif change == "nan":
        steps["obs"][3, 1] = np.nan
    elif change == "short":
        steps["episode_end"][:] = True
    else:
        steps[change] = steps[change][:-1]
    with pytest.raises(UserError, match="set `prior_data=0`"):
        RelabelledReplay(steps, SPACES, 2, nstep=3, gamma=GAMMA)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relabelled_replay, "UPDATES", 5)


# ---- in a finetuning -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def skills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cic.pretrain("point_mass", "cic", out=tmp_path_factory.mktemp("prior") / "skills", **SMALL).path


def test_the_share_comes_from_the_pretraining_and_the_folder_stands_alone(
    skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    copied, drawn = shutil.copytree(skills, tmp_path / "skills"), []
    sample = RelabelledReplay.sample

    def watched(self: RelabelledReplay, batch: int, rng: np.random.Generator) -> Any:
        drawn.append(batch)
        return sample(self, batch, rng)

    def usable(self: RelabelledReplay, *args: Any) -> str:
        label(self, *args)
        self.usable = True
        return ""

    label = RelabelledReplay.label
    monkeypatch.setattr(RelabelledReplay, "label", usable)
    monkeypatch.setattr(RelabelledReplay, "sample", watched)
    plain = cic.finetune(copied, "reach_top_left", out=tmp_path / "plain", **SMALL)
    assert not drawn
    mixed = cic.finetune(copied, "reach_top_left", out=tmp_path / "mixed", prior_data=0.25, **SMALL)
    assert set(drawn) == {4}
    assert mixed.result["skill"] == plain.result["skill"]
    weights = [cic.load(run.path).state_dict() for run in (plain, mixed)]
    assert any((weights[0][name] != weights[1][name]).any() for name in weights[0])
    assert not (tmp_path / "plain" / "inherited" / "steps.safetensors").exists()
    shutil.rmtree(copied)
    longer = cic.resume(tmp_path / "mixed", steps=400, quiet=True)
    assert longer.result["step"] == 400


def test_by_default_half_is_borrowed_where_it_was_kept(skills: Path, tmp_path: Path, quick: None) -> None:
    for at, share in ((None, 0.5), (200, 0.0)):
        run = cic.finetune(skills, "reach_top_left", out=tmp_path / str(at), prior_data=None, at=at, **SMALL)
        assert Run(run.path).config["prior_data"] == share
    assert finetune_defaults("walker-run", "laptop").prior_data is None
    assert (
        finetune_defaults("walker-run", "paper").prior_data == finetune_defaults("walker-run", "smoke").prior_data == 0
    )


def test_prior_without_steps_is_one_sentence(skills: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="omit `at` or `prior_data`"):
        cic.finetune(skills, "reach_top_left", out=tmp_path / "a", prior_data=0.5, at=200, **SMALL)
    bare = shutil.copytree(skills, tmp_path / "bare")
    for folder in (bare / "checkpoints").iterdir():
        (folder / "replay.safetensors").write_bytes(b"no")
    with pytest.raises(UserError):
        cic.finetune(bare, "reach_top_left", out=tmp_path / "b", prior_data=0.5, **SMALL)
    with pytest.raises(UserError, match="prior_data must lie in"):
        cic.finetune(skills, "reach_top_left", out=tmp_path / "c", prior_data=1.0, **SMALL)


@pytest.mark.slow
def test_from_scratch_there_is_nothing_to_take(tmp_path: Path) -> None:
    runs = [
        cic.finetune(None, "point_mass-reach_top_left", out=tmp_path / str(share), prior_data=share, **SMALL)
        for share in (0.0, 0.5)
    ]
    assert runs[0].result["returns"] == runs[1].result["returns"]


class Costly(gymnasium.Env[Any, Any]):
    """A reward on the action, which no observation shows."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), -float(action[0]), False, False, {}


def test_a_finetuning_reports_that_it_does_not_use_the_data(tmp_path: Path) -> None:
    cic.register_env("costly", lambda: gymnasium.wrappers.TimeLimit(Costly(), 20))
    run = cic.pretrain("costly", out=tmp_path / "run", steps=200, **SMALL).path
    with pytest.warns(UserWarning, match="the finetuning continues without pre-training data"):
        tuned = cic.finetune(run, "costly", out=tmp_path / "tuned", steps=260, warmup=200, prior_data=0.5, **SMALL)
    assert tuned.result["prior/share"] == 0
    assert tuned.result["prior/r2"] < 0.9
    assert '"prior/r2"' in (tmp_path / "tuned" / "metrics.jsonl").read_text()
