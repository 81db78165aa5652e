"""Data and policies for other programs, read back by those programs or by loaders written from their conventions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from helpers import steady
from hypothesis import given
from hypothesis import strategies as st

import cic
from cic import cli, envs
from cic.core.errors import UserError
from cic.core.types import Spaces
from cic.envs.suite.walker import Walker
from cic.export import Episode, Experience, episodes_of, export_policy, read_exorl, read_minari, write_exorl
from cic.export.minari import write_minari
from cic.learning.replay import Replay
from cic.runs.folder import Run

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 8, "batch": 8, "quiet": True}
TASKS = ["reach_top_left", "reach_top_right", "reach_bottom_left", "reach_bottom_right"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("export")


@pytest.fixture(scope="module")
def run(home: Path) -> Path:
    """Two copies, 110 steps each: two whole episodes of 50 steps each, and some steps of a third."""
    settings: dict[str, Any] = {"steps": 220, "num_envs": 2, "skill_dim": 3, "keep_physics": True}
    return cic.pretrain("gridworld", out=home / "run", **settings, **SMALL).path


@pytest.fixture(scope="module")
def experience(run: Path) -> Experience:
    return episodes_of(str(run))


def exorl_loader(folder: Path) -> list[dict[str, np.ndarray]]:
    """As ExORL's replay_buffer.py reads: names of exactly two underscores, T + 1 rows, transition i is
    obs[i − 1], action[i], reward[i], discount[i], obs[i]."""
    transitions = []
    for file in sorted(folder.glob("*.npz")):
        _, index, length = file.stem.split("_")
        assert int(index) >= 0
        with file.open("rb") as opened:
            episode = dict(np.load(opened))
        assert all(len(rows) == int(length) + 1 for rows in episode.values())
        assert episode["reward"].shape == episode["discount"].shape == (int(length) + 1, 1)
        assert (episode["action"][0] == 0).all()
        assert (episode["reward"][0], episode["discount"][0]) == (0, 1)
        for i in range(1, int(length) + 1):
            at = {name: episode[name][i] for name in ("action", "reward", "discount", "physics")}
            transitions.append({"obs": episode["observation"][i - 1], "next_obs": episode["observation"][i], **at})
    return transitions


# ---- from the replay -------------------------------------------------------------------------------------------


def test_whole_episodes_come_out_with_all_that_is_known(experience: Experience) -> None:
    assert (experience.environment, experience.method) == ("gridworld", "cic")
    assert [len(episode) for episode in experience.episodes] == [50] * 4
    assert experience.left_out == 20
    for episode in experience.episodes:
        assert episode.observation.shape == (51, 2)
        assert list(episode.task_rewards) == TASKS
        assert not episode.terminated
        assert episode.skill.shape == (50, 3)


def test_an_episode_is_what_the_environment_does(experience: Experience) -> None:
    """The same actions from the same cell lead to the same observations and pay every task the same."""
    for episode in experience.episodes:
        env = envs.make("gridworld")
        env.reset(seed=0)
        env._cells[:] = episode.physics[0]
        for t, action in enumerate(episode.action):
            obs, reward, _, _, info = env.step(action[None])
            assert (obs[0] == episode.observation[t + 1]).all()
            assert reward[0] == episode.reward[t] == 0
            assert (env.physics()[0] == episode.physics[t + 1]).all()
            assert {task: paid[0] for task, paid in info["rewards"].items()} == {
                task: paid[t] for task, paid in episode.task_rewards.items()
            }


@steady
@given(st.integers(0, 2**31), st.integers(8, 40), st.integers(1, 3), st.integers(1, 60))
def test_a_ring_gives_back_exactly_the_episodes_that_are_whole(seed: int, slots: int, copies: int, ticks: int) -> None:
    rng = np.random.default_rng(seed)
    replay = Replay(Spaces(1, 1), 1, slots * copies, copies, nstep=1, tasks=2)
    streams: list[list[list[float]]] = [[[]] for _ in range(copies)]
    obs = np.zeros((copies, 1), np.float32)
    for count in range(1, ticks + 1):
        skill = rng.integers(0, 2, (copies, 1)).astype(np.float32)
        paid = rng.random((copies, 2), dtype=np.float32)
        replay.add(obs, skill, -obs, obs[:, 0] / 2, np.zeros(copies, np.bool_), task_rewards=paid)
        for copy in range(copies):
            streams[copy][-1].append(float(obs[copy, 0]))
        obs = np.full((copies, 1), count, np.float32) + 1000 * np.arange(copies, dtype=np.float32)[:, None]
        done = rng.random(copies) < 0.2
        replay.finish(obs, done)
        for copy in np.flatnonzero(done):
            streams[copy][-1].append(float(obs[copy, 0]))
            streams[copy].append([])
    wanted = []
    for copy in range(copies):
        held, kept = min(int(replay.written[copy]), slots), []
        back = len(streams[copy][-1])
        for records in reversed(streams[copy][:-1]):
            back += len(records)
            oldest = back == held and replay.written[copy] > slots  # complete, but this cannot be known
            if back <= held and not oldest:
                kept.insert(0, records)
        wanted += kept
    found = list(Replay.load(replay.state()).episodes(("a", "b")))
    assert [episode.observation[:, 0].tolist() for episode in found] == wanted
    for episode in found:
        assert episode.complete
        assert (episode.action == -episode.observation[:-1]).all()
        assert (episode.reward == episode.observation[:-1, 0] / 2).all()


def test_without_physics_there_is_no_state_and_with_it_resuming_continues(home: Path) -> None:
    path = cic.pretrain("gridworld", out=home / "plain", steps=110, **SMALL).path
    assert episodes_of(str(path)).episodes[0].physics is None
    with pytest.raises(UserError, match="omit `keep_physics`"):
        cic.pretrain("gymnasium:Pendulum-v1", "rnd", out=home / "none", steps=110, keep_physics=True, **SMALL)
    assert not (home / "none").exists()


def test_physics_is_dm_controls_state(home: Path) -> None:
    """Putting it back into the model gives the observation that was seen."""
    settings: dict[str, Any] = {"steps": 1010, "warmup": 1000, "keep_physics": True, "replay": 2000}
    path = cic.pretrain("walker", "rnd", out=home / "walker", **settings, **SMALL).path
    (episode,) = episodes_of(str(path)).episodes
    assert episode.physics.shape == (1001, 18)
    domain = Walker(None)
    data = mujoco.MjData(domain.model)
    for t in (0, 1, 500, 1000):
        data.qpos[:], data.qvel[:] = np.split(episode.physics[t], 2)
        mujoco.mj_forward(domain.model, data)
        seen = np.concatenate(domain.observed(data), axis=None)
        np.testing.assert_allclose(seen, episode.observation[t], rtol=1e-5, atol=1e-5)


# ---- ExORL -----------------------------------------------------------------------------------------------------


def same(one: Episode, other: Episode) -> bool:
    pairs = [
        (getattr(one, name), getattr(other, name)) for name in ("observation", "action", "reward", "skill", "physics")
    ]
    paid = one.task_rewards.keys() == other.task_rewards.keys() and all(
        np.array_equal(one.task_rewards[task], other.task_rewards[task]) for task in one.task_rewards
    )
    return paid and one.terminated == other.terminated and all(np.array_equal(a, b) for a, b in pairs)


def test_exorl_by_its_own_convention_and_back(experience: Experience, tmp_path: Path) -> None:
    folder = write_exorl(experience, tmp_path, task="reach_top_left")
    assert folder == tmp_path / "gridworld" / "cic" / "buffer"
    transitions = exorl_loader(folder)
    assert len(transitions) == 200
    first = experience.episodes[0]
    for t in range(50):
        assert (transitions[t]["obs"] == first.observation[t]).all()
        assert (transitions[t]["next_obs"] == first.observation[t + 1]).all()
        assert (transitions[t]["action"] == first.action[t]).all()
        assert transitions[t]["reward"] == first.task_rewards["reach_top_left"][t]
        assert transitions[t]["discount"] == 1
        assert (transitions[t]["physics"] == first.physics[t + 1]).all()
    again = list(read_exorl(folder))
    for one, other in zip(experience.episodes, again, strict=True):
        assert (other.reward == one.task_rewards["reach_top_left"]).all()
    plain = list(read_exorl(write_exorl(experience, tmp_path / "plain")))
    assert all(same(one, other) for one, other in zip(experience.episodes, plain, strict=True))


def test_a_termination_is_a_discount_of_zero(tmp_path: Path) -> None:
    steps, none = np.zeros((3, 1), np.float32), np.zeros((3, 0), np.float32)
    episode = Episode(np.zeros((4, 2), np.float32), steps, steps[:, 0], {}, True, none)
    folder = write_exorl(Experience("mine", "rnd", [episode], 0), tmp_path)
    assert dict(np.load(folder / "episode_000000_3.npz"))["discount"][:, 0].tolist() == [1, 1, 1, 0]
    (back,) = read_exorl(folder)
    assert back.terminated


def test_nothing_is_overwritten_and_strange_files_are_refused(experience: Experience, tmp_path: Path) -> None:
    folder = write_exorl(experience, tmp_path)
    with pytest.raises(UserError, match="contains episodes already"):
        write_exorl(experience, tmp_path)
    with pytest.raises(UserError, match='no rewards of "fly"; its tasks are: reach_top_left'):
        write_exorl(experience, tmp_path / "other", task="fly")
    with pytest.raises(UserError, match=r"contains no \.npz"):
        list(read_exorl(tmp_path))
    (folder / "episode_000000_50.npz").rename(folder / "episode_000000_49.npz")
    with pytest.raises(UserError, match="should have 50 rows"):
        list(read_exorl(folder))
    (folder / "episode_000000_49.npz").rename(folder / "a.npz")
    with pytest.raises(UserError, match="its name must be"):
        list(read_exorl(folder))


# ---- Minari ----------------------------------------------------------------------------------------------------


def test_minari_opens_it(experience: Experience, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari", reason="the extra `export` is not installed")
    pytest.importorskip("h5py", reason="the extra `export` is not installed")
    folder = write_minari(experience, tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = minari.load_dataset("cic/gridworld/cic-v0")
    assert dataset.total_episodes == 4
    assert dataset.total_steps == 200
    for one, theirs in zip(experience.episodes, dataset.iterate_episodes(), strict=True):
        assert (theirs.observations == one.observation).all()
        assert (theirs.actions == one.action).all()
        assert (theirs.rewards == one.reward).all()
        assert theirs.truncations.tolist() == [False] * 49 + [True]
        assert not theirs.terminations.any()
        assert (theirs.infos["reward_reach_top_left"][1:] == one.task_rewards["reach_top_left"]).all()
        assert (theirs.infos["physics"] == one.physics).all()
    assert all(same(one, other) for one, other in zip(experience.episodes, read_minari(folder), strict=True))
    with pytest.raises(UserError, match="contains a dataset already"):
        write_minari(experience, tmp_path)


def test_minari_is_asked_for(experience: Experience, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    with pytest.raises(UserError, match=r"pip install 'cic\[export\]'"):
        write_minari(experience, tmp_path)


# ---- policies --------------------------------------------------------------------------------------------------


def outputs(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    if path.suffix == ".pt2":
        given = (torch.from_numpy(value) for value in inputs.values())
        return torch.export.load(path).module()(*given).detach().numpy()
    runtime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    return runtime.InferenceSession(path).run(None, inputs)[0]


@pytest.mark.parametrize("format", ["torch", "onnx"])
@pytest.mark.parametrize("learner", ["ddpg", "sac"])
@pytest.mark.parametrize("method", ["cic", "rnd"])
def test_the_exported_policy_gives_the_same_actions(method: str, learner: str, format: Any, tmp_path: Path) -> None:
    if format == "onnx":
        pytest.importorskip("onnx", reason="the extra `export` is not installed")
    own = {"skill_dim": 3, "encode_policy": True} if method == "cic" else {}
    path = cic.pretrain("gridworld", method, learner=learner, out=tmp_path / "run", steps=110, **own, **SMALL).path
    file, names = export_policy(path, tmp_path / "policy", format)
    rng, agent = np.random.default_rng(0), cic.load(path)
    obs = rng.uniform(-1, 1, (7, 2)).astype(np.float32)
    skill = agent.objective.skills.sample(7, rng)
    inputs = {"obs": obs, "skill": skill} if method == "cic" else {"obs": obs}
    assert names == list(inputs)
    np.testing.assert_allclose(outputs(file, inputs), agent.act(obs, skill), atol=1e-6)
    with pytest.raises(UserError, match="exists already"):
        export_policy(path, tmp_path / "policy", format)


def test_a_finetuned_policy_has_its_skill_built_in(run: Path, tmp_path: Path) -> None:
    tuned = cic.finetune(run, "reach_top_left", out=tmp_path / "tuned", steps=110, num_envs=1, **SMALL).path
    file, names = export_policy(tuned, tmp_path / "policy")
    assert names == ["obs"]
    obs, agent = np.random.default_rng(0).uniform(-1, 1, (5, 2)).astype(np.float32), cic.load(tuned)
    np.testing.assert_allclose(outputs(file, {"obs": obs}), agent.act(obs), atol=1e-6)
    action, state = agent.predict(obs)
    assert (action == agent.act(obs)).all()
    assert state is None
    action, state = agent.predict(obs[0], state="kept", episode_start=True, deterministic=False)
    assert action.shape == (2,)
    assert state == "kept"
    assert (action != agent.act(obs[0])).any(), "it explores"
    with pytest.raises(UserError, match="contains NaN"):
        agent.predict(obs * np.nan)


def test_policy_of_a_finetuned_run_without_skills(tmp_path: Path) -> None:
    tuned = cic.finetune(None, "gridworld-reach_top_left", out=tmp_path / "tuned", steps=110, num_envs=1, **SMALL).path
    file, names = export_policy(tuned, tmp_path / "policy")
    obs = np.random.default_rng(0).uniform(-1, 1, (5, 2)).astype(np.float32)
    assert names == ["obs"]
    np.testing.assert_allclose(outputs(file, {"obs": obs}), cic.load(tuned).act(obs), atol=1e-6)


def test_export_that_is_killed_leaves_no_incomplete_dataset(
    experience: Experience, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, save = [], np.savez_compressed

    def fail(*args: Any, **arrays: Any) -> None:
        saved.append(args)
        if len(saved) == 2:
            raise KeyboardInterrupt
        save(*args, **arrays)

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(KeyboardInterrupt):
        write_exorl(experience, tmp_path)
    assert not list(tmp_path.rglob("buffer"))
    assert len(list(write_exorl(experience, tmp_path).iterdir())) == len(experience.episodes)


# ---- the command -----------------------------------------------------------------------------------------------


def test_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["export", str(run), "--task", "gridworld-reach_top_left", "--out", str(tmp_path)]
    assert cli.main(line) == 0
    said = capsys.readouterr()
    assert said.out == f"{tmp_path / 'gridworld' / 'cic' / 'buffer'}: 4 episodes, 200 steps\n"
    assert said.err == "cic: note: 20 steps of incomplete episodes are left out\n"
    assert cli.main(["export", str(run), "--format", "torch", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'policy.pt2'}: obs and skill to action\n"
    assert cli.main(line) == 2
    assert "choose another --out" in capsys.readouterr().err


def test_a_run_without_a_whole_episode(tmp_path: Path) -> None:
    path = cic.pretrain("gridworld", "rnd", out=tmp_path / "run", steps=40, warmup=10, **SMALL).path
    with pytest.raises(UserError, match="contains no complete episode"):
        episodes_of(Run(path))
