"""Datasets: the same episodes from every format, rewards recomputed as dm_control computes them, damaged files."""

from __future__ import annotations

import dataclasses
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cic
from cic import envs
from cic.core.errors import UserError
from cic.data import Dataset, drift, open_dataset, relabel
from cic.export import episodes_of, write_exorl
from cic.export.minari import write_minari
from cic.learning.replay import Episode

TOP_LEFT = "gridworld-reach_top_left"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight complete episodes of 50 steps."""
    settings: dict[str, Any] = {"scale": "smoke", "hidden": 8, "batch": 8, "quiet": True, "keep_physics": True}
    return cic.pretrain("gridworld", "rnd", out=tmp_path_factory.mktemp("data") / "run", **settings).path


@pytest.fixture(scope="module")
def exorl(run: Path) -> Path:
    return write_exorl(episodes_of(run), run.parent / "exorl")


def same(one: Dataset, other: Dataset) -> bool:
    pairs = list(zip(one.episodes, other.episodes, strict=True))
    fields = ("observation", "action", "reward", "physics")
    equal = all(np.array_equal(getattr(a, name), getattr(b, name)) for a, b in pairs for name in fields)
    return equal and all(a.terminated == b.terminated for a, b in pairs)


# ---- sources ---------------------------------------------------------------------------------------------------


def test_a_run_and_its_exorl_folder_are_the_same_data(run: Path, exorl: Path) -> None:
    stored = open_dataset(run)
    assert (stored.environment, stored.steps, len(stored.episodes)) == ("gridworld", 400, 8)
    for folder in (exorl, exorl.parent):
        found = open_dataset(folder)
        assert same(stored, found)
        assert found.environment == "gridworld"
        assert found.digest() == stored.digest()
    assert (open_dataset(exorl).rewards(TOP_LEFT) == stored.rewards(TOP_LEFT)).all()


def test_a_minari_round_trip_is_exact(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari", reason="the extra `export` is not installed")
    pytest.importorskip("h5py", reason="the extra `export` is not installed")
    folder = write_minari(episodes_of(run), tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    for source in (str(folder), "minari:cic/gridworld/rnd-v0"):
        found = open_dataset(source)
        assert same(open_dataset(run), found)
        assert found.environment == "gridworld"
        assert (found.rewards(TOP_LEFT) == open_dataset(run).rewards(TOP_LEFT)).all()
    with pytest.raises(UserError, match=r'no Minari dataset "cic/none-v0".*there are: cic/gridworld/rnd-v0'):
        open_dataset("minari:cic/none-v0")


def test_a_mixture_has_the_episodes_of_its_parts(run: Path, exorl: Path) -> None:
    one, two = open_dataset(run), open_dataset(f"{run}+{exorl}")
    assert two.steps == 2 * one.steps
    assert (two.rewards(TOP_LEFT) == np.tile(one.rewards(TOP_LEFT), 2)).all()
    assert [len(open_dataset(f"{run}+{exorl}", steps=101).episodes), len(open_dataset(run, 101).episodes)] == [4, 3]


def test_a_limit_keeps_whole_episodes_in_order(run: Path, exorl: Path) -> None:
    for source in (run, exorl):
        found = open_dataset(source, steps=60)
        assert found.steps == 100
        assert (found.episodes[1].observation == open_dataset(source).episodes[1].observation).all()


def test_foreign_and_damaged_files_get_one_message_each(run: Path, exorl: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no dataset: give a run folder"):
        open_dataset(tmp_path / "nowhere")
    folder = tmp_path / "buffer"
    folder.mkdir()
    with pytest.raises(UserError, match=r"contains no \.npz episodes"):
        open_dataset(folder)
    whole = (exorl / "episode_000000_50.npz").read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    bad = folder / "episode_000000_50.npz"
    for content in (b"", b"text", whole[: len(whole) // 2], bytes(damaged)):
        bad.write_bytes(content)
        with pytest.raises(UserError, match=r"episode_000000_50\.npz .*(download it again|is not an episode)"):
            open_dataset(folder)
    good = dict(np.load(exorl / "episode_000000_50.npz"))
    wrong: dict[str, dict[str, Any]] = {
        "cannot be read": good | {"action": np.array([{}], object)},  # a pickle, which is not loaded
        "lacks discount": {name: values for name, values in good.items() if name != "discount"},
        "reward contains NaN": good | {"reward": np.full((51, 1), np.nan, np.float32)},
        "should have 51 rows of action": good | {"action": good["action"][1:]},
        "action is int64": good | {"action": good["action"].astype(np.int64)},
        r"observation contains NaN, or values beyond 1e\+09": good
        | {"observation": np.full((51, 2), 3e38, np.float32)},
        r"action has shape \(51, 0\)": good | {"action": np.zeros((51, 0), np.float32)},
    }
    for message, arrays in wrong.items():
        np.savez(bad, **arrays)
        with pytest.raises(UserError, match=message):
            open_dataset(folder)


def npy(description: str) -> bytes:
    """A file of NumPy's format with this header and no values."""
    header = description.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 24)}",  # beyond any memory
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 10000000000000000000000)}",
        "(" * 5000,
    ],
)
def test_headers_that_numpy_cannot_read_get_one_message(header: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "episode_000000_5.npz", "w") as archive:
        archive.writestr("observation.npy", npy(header))
    with pytest.raises(UserError, match="cannot be read as an episode"):
        open_dataset(tmp_path)


def test_damaged_lzma_gets_one_message(exorl: Path, tmp_path: Path) -> None:
    file = tmp_path / "episode_000000_50.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("observation.npy", (exorl / file.name).read_bytes())
    damaged = bytearray(file.read_bytes())
    damaged[60:90] = bytes(30)
    file.write_bytes(damaged)
    with pytest.raises(UserError, match="cannot be read as an episode"):
        open_dataset(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="POSIX")
def test_special_files_are_not_opened(exorl: Path, tmp_path: Path) -> None:
    file = tmp_path / "episode_000000_50.npz"
    os.mkfifo(file)
    with pytest.raises(UserError, match="not a regular file"):  # reading it would wait for ever
        open_dataset(tmp_path)
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(UserError, match="not a regular file"):
        open_dataset(tmp_path)
    file.unlink()
    file.symlink_to(exorl / file.name)
    assert open_dataset(tmp_path).steps == 50


def test_files_that_do_not_fit_into_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cic.data.exorl.available_memory", lambda: 64 << 20)
    with zipfile.ZipFile(tmp_path / "episode_000000_5.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("observation.npy", bytes(2 << 20))  # 2 kB compressed
    with pytest.raises(UserError, match="memory for 1 MB per file"):
        open_dataset(tmp_path)


def test_states_of_another_simulator_get_one_message(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where MuJoCo writes its log
    episode = open_dataset(run).episodes[0]
    walker = dataclasses.replace(episode, action=np.zeros((50, 6), np.float32), physics=np.full((51, 18), 1e9))
    with pytest.raises(UserError, match="the simulator states of the data are not those of walker"):
        drift("walker", [walker], 2)


def test_data_of_different_environments_are_not_mixed(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "walker" / "x" / "buffer"
    folder.mkdir(parents=True)
    rows = {"observation": 24, "action": 6, "reward": 1, "discount": 1}
    np.savez(folder / "episode_000000_3.npz", **{name: np.ones((4, width)) for name, width in rows.items()})
    assert open_dataset(folder).environment == "walker"
    with pytest.raises(UserError, match="only data of one environment can be mixed"):
        open_dataset(f"{run}+{folder}")
    with pytest.raises(UserError, match=r'neither rewards of "walker-run" .* nor simulator states'):
        open_dataset(folder).rewards("walker-run")


# ---- rewards ---------------------------------------------------------------------------------------------------


def collected(name: str, steps: int, num_envs: int = 2) -> list[Episode]:
    """Random actions in our environment, with the rewards of every task and the simulator states."""
    env, rng = envs.make(name, num_envs=num_envs, seed=3), np.random.default_rng(0)
    obs, _ = env.reset(seed=3)
    seen, states, actions, rewards = [obs], [env.physics()], [], []
    for _ in range(steps):
        actions.append(rng.uniform(-1, 1, (num_envs, env.spaces.action)).astype(np.float32))
        obs, _, _, _, info = env.step(actions[-1])
        seen.append(obs)
        states.append(env.physics())
        rewards.append(info["rewards"])
    env.close()
    return [
        Episode(
            np.stack(seen)[:, i],
            np.stack(actions)[:, i],
            np.zeros(steps, np.float32),
            {task: np.stack([step[task] for step in rewards])[:, i] for task in env.tasks},
            False,
            np.zeros((steps, 0), np.float32),
            np.stack(states)[:, i],
        )
        for i in range(num_envs)
    ]


@pytest.mark.parametrize("domain", ["walker", "quadruped", "hopper", "point_mass", "gridworld"])
def test_recomputed_rewards_are_those_of_the_environment(domain: str) -> None:
    """Hopper and point mass also reward small actions."""
    episodes = collected(domain, 40)
    found = relabel.task_rewards(domain, episodes)
    assert found.keys() == envs.domains()[domain].experts.keys()
    for task, reward in found.items():
        assert (reward == np.concatenate([episode.task_rewards[task] for episode in episodes])).all(), task
    assert drift(domain, episodes, samples=20) < 1e-9


def test_drift_is_the_largest_deviation() -> None:
    (episode,) = collected("walker", 5, num_envs=1)
    assert episode.physics is not None
    episode.physics[3, 2] += 0.25
    assert drift("walker", [episode], samples=30) >= 0.24
    with pytest.raises(UserError, match="belong to another domain"):
        relabel.task_rewards("quadruped", [episode])


@pytest.mark.parametrize(("domain", "tasks"), [("walker", ("stand", "walk", "run")), ("quadruped", ("walk", "run"))])
def test_exorl_files_of_dm_control_are_relabelled_as_dm_control_does(
    domain: str, tasks: tuple[str, ...], tmp_path: Path
) -> None:
    """As ExORL's loader: set the state of each row, then ask the task for its reward."""
    suite = pytest.importorskip("dm_control.suite")
    env = suite.load(domain, tasks[-1], {"random": 1})
    rng, spec = np.random.default_rng(0), env.action_spec()
    step = env.reset()
    rows = []
    for _ in range(31):
        obs = np.concatenate([np.ravel(part) for part in step.observation.values()]).astype(np.float32)
        action = rng.uniform(-1, 1, spec.shape).astype(np.float32) if rows else np.zeros(spec.shape, np.float32)
        rows.append((obs, action, env.physics.get_state()))
        step = env.step(rng.uniform(-1, 1, spec.shape))
    observation, action, physics = (np.stack(part) for part in zip(*rows, strict=True))
    ones = np.ones((31, 1), np.float32)
    folder = tmp_path / domain / "random" / "buffer"
    folder.mkdir(parents=True)
    arrays: Any = {"observation": observation, "action": action, "reward": 0 * ones, "discount": ones}
    np.savez_compressed(folder / "episode_000000_30.npz", **arrays, physics=physics)
    data = open_dataset(folder)
    for task in tasks:
        theirs = suite.load(domain, task)
        wanted = []
        for state in physics[1:]:
            with theirs.physics.reset_context():
                theirs.physics.set_state(state)
            wanted.append(theirs.task.get_reward(theirs.physics))
        assert np.abs(data.rewards(f"{domain}-{task}") - wanted).max() < 1e-6, task
        assert np.ptp(wanted) > 1e-4


def test_rewards_are_cached_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(relabel.CACHE, str(tmp_path))
    monkeypatch.setattr(relabel, "_CACHED_FROM", 1)
    episodes = collected("gridworld", 10)
    first = relabel.task_rewards("gridworld", episodes)
    (file,) = (tmp_path / "rewards").iterdir()
    monkeypatch.setattr(relabel, "_computed", lambda *_: pytest.fail("computed again"))
    again = relabel.task_rewards("gridworld", episodes)
    assert all((again[task] == first[task]).all() for task in first)
    file.write_bytes(b"damaged")
    with pytest.raises(pytest.fail.Exception, match="computed again"):
        relabel.task_rewards("gridworld", episodes)


# ---- the replay ------------------------------------------------------------------------------------------------


def test_the_replay_samples_the_transitions_of_the_episodes() -> None:
    rng = np.random.default_rng(0)
    episodes = []
    for number, length in enumerate((4, 1, 6)):
        obs = (100 * number + np.arange(length + 1, dtype=np.float32))[:, None]
        reward = rng.random(length, dtype=np.float32)
        skill = np.zeros((length, 0), np.float32)
        episodes.append(Episode(obs, -obs[:-1], reward, {}, terminated=number == 2, skill=skill))
    data = Dataset("test", None, episodes)
    replay = data.replay(data.rewards(), nstep=2, gamma=0.9)
    batch = replay.sample(500, rng)
    assert sorted(set(batch.obs[:, 0].tolist())) == [0, 1, 2, 200, 201, 202, 203, 204]
    rewards = {
        float(o[0]): episode.reward[i : i + 2] for episode in episodes for i, o in enumerate(episode.observation)
    }
    for obs, action, reward, discount, following in zip(*batch[:5], strict=True):
        start = float(obs)
        first, second = rewards[start]
        assert float(action) == -start
        assert float(following) == start + 2
        assert float(reward) == pytest.approx(first + 0.9 * second)
        assert float(discount) == pytest.approx(0.0 if start == 204 else 0.81)
    skills = rng.random((3, 2), dtype=np.float32)
    drawn = data.replay(data.rewards(), 1, 0.9, skills).sample(50, rng).skill.numpy()
    assert {tuple(row) for row in drawn} == {tuple(row) for row in skills}
    with pytest.raises(UserError, match="shorter than 7 steps"):
        data.replay(data.rewards(), nstep=7, gamma=0.9)
