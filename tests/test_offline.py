"""Offline training: losses against NumPy, presets, exact resume, zero-shot agents, messages, and the report."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agent_setup import batches, make_agent, restored, same, shake
from faults.folders import contents

import cic
from cic import cli, envs
from cic.core.errors import Interrupted, UserError
from cic.core.types import Batch
from cic.learning.agent import Agent
from cic.learning.learners import learners
from cic.training.evaluation import rollout
from cic.training.loop import Loop
from cic.training.offline_settings import PRESETS, OfflineConfig, offline_defaults

OFFLINE = list(learners(offline=True))
SMALL: dict[str, Any] = {"preset": "smoke", "quiet": True}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("offline")


@pytest.fixture(scope="module")
def data(home: Path) -> Path:
    """40 episodes of the gridworld in ExORL's format; the actions of each prefer one direction."""
    env, rng = envs.make("gridworld", num_envs=40), np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    direction = rng.uniform(-1, 1, (40, 2))
    rows = [(obs, np.zeros((40, 2), np.float32), env.physics())]
    for _ in range(50):
        action = (direction + rng.uniform(-1, 1, (40, 2))).clip(-1, 1).astype(np.float32)
        rows.append((env.step(action).obs, action, env.physics()))
    folder = home / "gridworld" / "drift" / "buffer"
    folder.mkdir(parents=True)
    ones = np.ones((51, 1), np.float32)
    for i in range(40):
        observation, action, physics = (np.stack([row[part][i] for row in rows]) for part in range(3))
        arrays: Any = {"observation": observation, "action": action, "reward": 0 * ones, "discount": ones}
        np.savez(folder / f"episode_{i:06d}_50.npz", **arrays, physics=physics)
    return folder


# ---- losses ----------------------------------------------------------------------------------------------------


def setting(learner: str, **config: Any) -> tuple[Agent, Batch]:
    agent = shake(make_agent("ddpg", learner, config=config))
    return agent, batches(agent, 1)[0]


def numbers(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def q_values(network: Any, batch: Batch, action: np.ndarray, obs: torch.Tensor | None = None) -> np.ndarray:
    """(2, B)"""
    seen = batch.obs if obs is None else obs
    return numbers(network(seen, torch.from_numpy(np.asarray(action, np.float32)), batch.skill))[:, :, 0]


def mean_action(agent: Agent, obs: torch.Tensor) -> np.ndarray:
    return np.tanh(numbers(agent.learner.actor(obs)))


def td_error(q: np.ndarray, batch: Batch, following: np.ndarray) -> float:
    goal = numbers(batch.reward)[:, 0] + numbers(batch.discount)[:, 0] * following
    return float(((q - goal) ** 2).mean(axis=1).sum())


def normal(shape: tuple[int, ...], seed: int = 5) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(loss: torch.Tensor, wanted: float) -> None:
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_td3bc_weighs_value_and_distance() -> None:
    agent, batch = setting("td3bc", value_weight=1.7)
    noise = 0.2 * normal(batch.action.shape)
    following = np.clip(mean_action(agent, batch.next_obs) + numbers(noise), -1, 1)
    later = q_values(agent.learner.target, batch, following, batch.next_obs).min(axis=0)
    q = q_values(agent.learner.critic, batch, batch.action.numpy())
    close(agent.learner.critic_loss(batch, noise)[0], td_error(q, batch, later))
    mean = mean_action(agent, batch.obs)
    value = q_values(agent.learner.critic, batch, np.clip(mean + numbers(noise), -1, 1)).min(axis=0)
    distance = ((mean - numbers(batch.action)) ** 2).mean()
    close(agent.learner.actor_loss(batch, noise)[0], distance - 1.7 * value.mean() / np.abs(value).mean())


def test_td3bc_does_not_differentiate_its_weight() -> None:
    """With the weight as a constant, scaling the critic's values changes nothing in the actor's gradient."""
    agent, batch = setting("td3bc")
    noise = torch.zeros_like(batch.action)
    gradients = []
    for scale in (1.0, 8.0):
        with torch.no_grad():
            for head in agent.learner.critic.heads:
                head.weight.mul_(scale)
                head.bias.mul_(scale)
        loss, _ = agent.learner.actor_loss(batch, noise)
        gradients.append(torch.autograd.grad(loss, list(agent.learner.actor.parameters())))
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_bc_is_a_gaussian_log_likelihood() -> None:
    agent, batch = setting("bc", noise=0.3)
    error = mean_action(agent, batch.obs) - numbers(batch.action)
    density = np.exp(-(error**2) / (2 * 0.3**2)) / (0.3 * math.sqrt(2 * math.pi))
    close(agent.learner.actor_loss(batch)[0], -np.log(density).sum(axis=1).mean())


def test_iql_regresses_an_expectile_and_weighs_by_advantage() -> None:
    agent, batch = setting("iql", quantile=0.8, greediness=2.0, noise=0.5)
    learner = agent.learner
    known = q_values(learner.target, batch, batch.action.numpy()).min(axis=0)
    here, there = (numbers(learner.value(obs))[:, 0] for obs in (batch.obs, batch.next_obs))
    advantage = known - here
    assert (advantage > 0).any()
    assert (advantage < 0).any()
    close(learner.value_loss(batch)[0], np.where(advantage < 0, 0.2, 0.8) @ advantage**2 / len(advantage))
    q = q_values(learner.critic, batch, batch.action.numpy())
    close(learner.critic_loss(batch)[0], td_error(q, batch, there))
    distance = ((mean_action(agent, batch.obs) - numbers(batch.action)) ** 2).sum(axis=1)
    weight = np.minimum(np.exp(2.0 * advantage), 100)
    close(learner.actor_loss(batch)[0], (weight * distance).mean() / (2 * 0.5**2))


def test_cql_lowers_the_values_of_other_actions() -> None:
    agent, batch = setting("cql", conservatism=0.6, action_samples=2, alpha=0.3)
    learner, shape = agent.learner, (2, *batch.action.shape)

    def policy(obs: torch.Tensor, noise: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        mean, log_std = np.split(numbers(learner.actor(obs)), 2, axis=-1)
        std = np.exp(np.clip(log_std, -10, 2))
        raw = mean + std * numbers(noise)
        density = np.exp(-0.5 * numbers(noise) ** 2) / (std * math.sqrt(2 * math.pi)) / (1 - np.tanh(raw) ** 2)
        return np.tanh(raw), np.log(density).sum(axis=-1)

    noise, here, there = normal(batch.action.shape), normal(shape, 6), normal(shape, 7)
    uniform = torch.rand(shape, generator=torch.Generator().manual_seed(8)) * 2 - 1
    following, _ = policy(batch.next_obs, noise)
    later = q_values(learner.target, batch, following, batch.next_obs).min(axis=0)
    q = q_values(learner.critic, batch, batch.action.numpy())
    others = [*uniform.numpy(), *policy(batch.obs, here)[0], *policy(batch.next_obs, there)[0], batch.action.numpy()]
    values = np.stack([q_values(learner.critic, batch, action) for action in others])  # (7, 2, B)
    gap = (np.log(np.exp(values).sum(axis=0)) - q).mean(axis=1).sum()
    close(learner.critic_loss(batch, noise, uniform, here, there)[0], td_error(q, batch, later) + 0.6 * gap)
    action, density = policy(batch.obs, noise)
    value = q_values(learner.critic, batch, action).min(axis=0)
    temperature = float(learner.log_alpha.detach().exp())
    loss, metrics = learner.actor_loss(batch, noise)
    close(loss, (temperature * density - value).mean())
    assert float(metrics["actor/entropy"]) == pytest.approx(-density.mean(), rel=1e-4)
    close(learner.temperature_loss(torch.tensor(0.4), batch.action)[0], math.log(temperature) * (0.4 + 2))


def test_the_actor_of_td3_may_maximise_the_smaller_value() -> None:
    agent, batch = setting("td3", actor_value="min")
    with torch.no_grad():
        agent.learner.critic.heads[0].bias.add_(1)
    value = q_values(agent.learner.critic, batch, mean_action(agent, batch.obs))
    assert set(value.argmin(axis=0).tolist()) == {0, 1}
    close(agent.learner.actor_loss(batch)[0], -value.min(axis=0).mean())
    first = setting("td3")[0].learner
    first.load_state_dict(agent.learner.state_dict())
    close(first.actor_loss(batch)[0], -value[0].mean())


@pytest.mark.parametrize("learner", OFFLINE)
def test_offline_learners_train_and_continue_from_their_state(learner: str) -> None:
    agent, twin, fresh = (make_agent("ddpg", learner, seed=seed) for seed in (0, 0, 1))
    before = {name: value.clone() for name, value in agent.state_dict().items()}
    todo = batches(agent, 4)
    documented = (Path(__file__).parents[1] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    for batch in todo[:3]:
        metrics = agent.update(batch, intrinsic=False)
        assert all(f"| `{name}` |" in documented for name in metrics)
        assert all(bool(value.isfinite()) and value.numel() == 1 for value in metrics.values())
        twin.update(batch, intrinsic=False)
    assert same(agent, twin)
    moved = {name.split(".")[1] for name, value in agent.state_dict().items() if not torch.equal(value, before[name])}
    assert moved >= ({"actor"} if learner == "bc" else {"actor", "critic", "target"})
    restored(agent, fresh)
    for one in (agent, fresh):
        one.update(todo[3], intrinsic=False)
    assert same(agent, fresh)
    for explore in (False, True):
        obs = todo[0].obs.numpy()
        action = agent.act(obs, explore=explore)
        assert (action == fresh.act(obs, explore=explore)).all()
        assert (np.abs(action) < 1).all()


@pytest.mark.parametrize("learner", OFFLINE)
def test_a_critic_update_alone_leaves_the_policy(learner: str) -> None:
    agent, batch = setting(learner)
    before = {name: value.clone() for name, value in agent.learner.actor.state_dict().items()}
    agent.update(batch, intrinsic=False, actor=False)
    assert all(torch.equal(value, before[name]) for name, value in agent.learner.actor.state_dict().items())


# ---- presets ---------------------------------------------------------------------------------------------------


def test_the_exorl_preset_has_the_settings_of_the_benchmark() -> None:
    """Yarats et al. 2022, by their configuration files."""
    common = {"hidden": 1024, "batch": 1024, "gamma": 0.99, "lr": 1e-4, "tau": 0.01, "nstep": 1}
    own: dict[str, dict[str, Any]] = {
        "td3": {"actor_every": 1, "actor_value": "min", "target_noise": 0.2, "noise_clip": 0.3},
        "td3bc": {"value_weight": 2.5, "noise": 0.2, "noise_clip": 0.3},
        "cql": {"conservatism": 0.01, "action_samples": 3, "target_entropy": -1.0},
        "bc": {"noise": 0.2},
        "iql": {},
    }
    for learner, wanted in own.items():
        config = offline_defaults("data", "walker-run", learner=learner, preset="exorl")
        found = dataclasses.asdict(config.learning)
        assert {name: found[name] for name in common | wanted} == common | wanted, learner
        assert (config.steps, config.data_steps) == (500_000, 1_000_000)
        assert (config.eval_every, config.eval_episodes) == (10_000, 10)


def test_presets_and_methods_that_do_not_exist_or_fit_are_refused() -> None:
    with pytest.raises(UserError, match=r'unknown preset "exor".*"exorl"'):
        offline_defaults("data", preset="exor")
    with pytest.raises(UserError, match=r"cic needs an environment.*fb, hilp, steer"):
        offline_defaults("data", objective="cic")
    with pytest.raises(UserError, match="cql learns one task: choose ddpg, td3 or sac for fb"):
        offline_defaults("data", objective="fb", learner="cql")
    with pytest.raises(UserError, match="bc learns from stored data only"):
        cic.pretrain("gridworld", "rnd", scale="smoke", learner="bc")
    with pytest.raises(UserError, match="num_envs must be 1 in offline training"):
        dataclasses.replace(offline_defaults("data"), num_envs=2)


# ---- runs ------------------------------------------------------------------------------------------------------


def test_a_policy_learns_from_what_others_did(home: Path, data: Path) -> None:
    """TD3 finds the way to a corner that a few of the episodes happen to reach."""
    settings: dict[str, Any] = {"steps": 400, "eval_every": 200, "hidden": 32, "batch": 64, "lr": 3e-3}
    done = cic.offline(data, "reach_top_left", out=home / "td3", **settings, **SMALL)
    assert done.result["return"] > 20
    found = cic.evaluate(done.path, episodes=2)
    assert list(found.returns) == ["gridworld-reach_top_left"]
    lines = [json.loads(line) for line in (done.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "eval/return" in line] == [200, 400]
    assert [line["step"] for line in lines if "critic/loss" in line] == [1, *range(20, 401, 20)]
    (record,) = [run for run in cic.runs(home) if run.name == "td3"]
    assert (record.title, record.task, record.score) == (
        "TD3 offline",
        "gridworld-reach_top_left",
        done.result["return"],
    )


class Stop(Exception):
    pass


@pytest.mark.parametrize(
    ("learner", "objective"), [("td3", None), pytest.param("ddpg", "hilp", marks=pytest.mark.slow)]
)
def test_a_resumed_run_has_the_bytes_of_an_undisturbed_one(
    learner: str, objective: str | None, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(out: Path) -> Path:
        task = None if objective else "reach_top_left"
        return cic.offline(data, task, learner=learner, objective=objective, out=out, log_every=7, **SMALL).path

    whole = start(tmp_path / "whole")
    for killed_at in (1, 47):
        cut, update = tmp_path / str(killed_at), Loop._update

        def dying(loop: Loop[Any], segment: Any, at: int = killed_at, update: Callable[..., None] = update) -> None:
            if loop.updates == at:
                raise Stop
            update(loop, segment)

        monkeypatch.setattr(Loop, "_update", dying)
        with pytest.raises(Stop):
            start(cut)
        monkeypatch.setattr(Loop, "_update", update)
        cic.resume(cut, quiet=True)
        assert contents(cut) == contents(whole)
    longer, planned = tmp_path / "longer", tmp_path / "planned"
    task = None if objective else "reach_top_left"
    settings: dict[str, Any] = {"learner": learner, "objective": objective, "log_every": 7} | SMALL
    cic.offline(data, task, out=longer, steps=50, **settings)
    cic.resume(longer, steps=60, quiet=True)
    cic.offline(data, task, out=planned, **settings)
    assert (longer / "metrics.jsonl").read_bytes() == (planned / "metrics.jsonl").read_bytes()


def test_observations_are_normalised_by_the_data(tmp_path: Path, data: Path) -> None:
    path = cic.offline(data, "reach_top_left", out=tmp_path / "run", normalise_obs=True, **SMALL).path
    seen = np.concatenate([episode.observation for episode in cic.data.open_dataset(data).episodes]).astype(float)
    encoder = cic.load(path).encoder
    np.testing.assert_allclose(encoder.mean.numpy(), seen.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(encoder.var.numpy(), seen.var(axis=0), atol=1e-6)


def test_a_run_resumes_only_from_its_own_data(tmp_path: Path, data: Path) -> None:
    folder = Path(shutil.copytree(data, tmp_path / "buffer"))
    path = cic.offline(folder, "gridworld-reach_top_left", out=tmp_path / "run", **SMALL).path
    (folder / "episode_000000_50.npz").unlink()
    with pytest.raises(UserError, match="changed after"):
        cic.resume(path, steps=100)
    for file in folder.iterdir():
        file.unlink()
    with pytest.raises(UserError, match=r"the data of .* cannot be read"):
        cic.resume(path, steps=100)


@pytest.mark.parametrize("objective", ["fb", "hilp"])
def test_a_zero_shot_agent_from_data(objective: str, home: Path, data: Path) -> None:
    done = cic.offline(data, objective=objective, out=home / objective, **SMALL)
    assert done.result["domain"] == "gridworld"
    reached = {task for task, returns in done.result["returns"].items() if len(returns) == 2}
    assert reached
    found = cic.infer(done.path, states=900, episodes=2)
    assert found.returns.keys() >= reached
    assert len(cic.evaluate(done.path, episodes=2).returns) == 4
    tuned = cic.finetune(done.path, "reach_top_left", scale="smoke", hidden=16, steps=150, out=home / f"t-{objective}")
    assert tuned.result["task"] == "gridworld-reach_top_left"


def test_a_formula_is_a_reward(home: Path, data: Path) -> None:
    """Of gridworld's quantities x and y, in [-1, 1]."""
    names = [quantity.name for quantity in envs.named_quantities("gridworld")]
    obs = np.array([[-1, 1], [0.5, 0.25]], np.float32)
    found = cic.data.formula_reward("gridworld", f"{names[1]} - 2 * {names[0]} ** 2", obs)
    np.testing.assert_allclose(found, obs[:, 1] - 2 * obs[:, 0] ** 2)
    settings: dict[str, Any] = {"steps": 300, "hidden": 32, "batch": 64, "lr": 3e-3, "reward_formula": names[1]}
    done = cic.offline(data, out=home / "formula", **settings, **SMALL)
    assert done.result["reward"] == names[1]
    assert done.result["return"] > 25  # of 50 steps at y = 1 at most
    with pytest.raises(UserError, match="only source of the reward"):
        cic.offline(data, "reach_top_left", out=home / "none", **settings, **SMALL)
    with pytest.raises(UserError, match="position 1"):
        cic.offline(data, out=home / "none", **settings | {"reward_formula": "spead"}, **SMALL)


def test_steer_learns_from_data(home: Path, data: Path) -> None:
    done = cic.offline(data, objective="steer", out=home / "steer", steps=300, hidden=32, batch=64, lr=3e-3, **SMALL)
    config = json.loads((done.path / "config.json").read_text())["config"]
    assert config["options"]["exploration"] == 0
    assert [quantity["name"] for quantity in config["options"]["quantities"]] == ["x", "y", "away"]
    env = envs.make("gridworld", num_envs=4)
    up = rollout(cic.load(done.path), env, np.array([0, 1, 0], np.float32), seed=0, keep=True).observations
    assert np.mean([path[-1, 1] for path in up]) > 0.5


def test_data_of_a_gymnasium_environment(home: Path) -> None:
    """The run's own reward is learned, and the policy acts in the units of the environment."""
    settings: dict[str, Any] = {"scale": "smoke", "hidden": 8, "batch": 8, "quiet": True}
    collected = cic.pretrain("gymnasium:Pendulum-v1", "rnd", out=home / "pendulum", **settings).path
    done = cic.offline(collected, out=home / "swing", **SMALL)
    assert done.result["task"] == "gymnasium:Pendulum-v1"
    assert done.result["return"] < 0
    agent = cic.load(done.path)
    assert agent.layout is not None
    assert agent.layout.action.high.tolist() == [2.0]


def test_data_of_another_simulator_are_reported(tmp_path: Path, data: Path) -> None:
    folder = Path(shutil.copytree(data.parents[1], tmp_path / "gridworld")) / "drift" / "buffer"
    for file in folder.iterdir():
        arrays: Any = dict(np.load(file))
        arrays["physics"] = (arrays["physics"] * 2) % 10
        np.savez(file, **arrays)
    with pytest.warns(UserWarning, match="does not fit this version of the simulator"):
        path = cic.offline(folder, "reach_top_left", out=tmp_path / "run", **SMALL).path
    assert json.loads((path / "config.json").read_text())["data"]["drift"] >= 1


def test_messages_name_the_setting_and_leave_no_folder(tmp_path: Path, data: Path) -> None:
    out = tmp_path / "none"
    cases: list[tuple[str, dict[str, Any]]] = [
        ("was collected without a reward: choose `task`, one of gridworld-reach_top_left", {}),
        ("only data of one environment|has observations and actions of sizes", {"task": "walker-run"}),
        ("unknown task of gridworld", {"task": "gridworld-fly"}),
        ("shorter than 60 steps", {"task": "reach_top_left", "nstep": 60}),
    ]
    for message, settings in cases:
        with pytest.raises(UserError, match=message):
            cic.offline(data, out=out, **settings, **SMALL)
    with pytest.raises(UserError, match="is no dataset"):
        cic.offline(tmp_path / "nowhere", "walker-run", out=out)
    assert not out.exists()


def test_the_command_does_the_same(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    arguments = ["--task", "reach_top_left", "--learner", "iql", "--preset", "smoke", "--quiet"]
    assert cli.main(["offline", str(data), *arguments, "--out", str(one)]) == 0
    assert "step 60" in capsys.readouterr().out
    cic.offline(data, "reach_top_left", learner="iql", out=two, **SMALL)
    assert (one / "metrics.jsonl").read_bytes() == (two / "metrics.jsonl").read_bytes()
    assert cli.main(["offline", "--task", "walker-run"]) == 2
    assert "needs DATA" in capsys.readouterr().err
    assert cli.main(["offline", "--resume", str(one), "--steps", "70", "--quiet"]) == 0
    assert cli.main(["runs", str(tmp_path)]) == 0
    assert "IQL offline" in capsys.readouterr().out


def test_interrupted_runs_name_their_command(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loop, "_stop_if_asked", lambda loop: setattr(loop.stop, "by", "SIGTERM") or _raise())
    with pytest.raises(Interrupted, match="cic offline --resume"):
        cic.offline(data, "reach_top_left", out=tmp_path / "run", **SMALL)


def _raise() -> None:
    from cic.training.loop import Stopped

    raise Stopped


def test_the_report_has_offline_runs_as_rows(tmp_path: Path, data: Path) -> None:
    for seed in (0, 1):
        cic.offline(data, "reach_top_left", out=tmp_path / "runs" / f"td3-{seed}", seed=seed, **SMALL)
    cic.offline(data, objective="fb", out=tmp_path / "runs" / "fb", **SMALL)
    cic.report(tmp_path / "runs", out=tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "TD3 offline" in page
    assert "FB offline" in page


def test_the_config_survives_json(data: Path) -> None:
    from cic.core.config import to_dict
    from cic.training.settings import config_from_dict

    for preset in PRESETS:
        config = offline_defaults(str(data), "reach_top_left", preset=preset)
        assert config_from_dict(OfflineConfig, json.loads(json.dumps(to_dict(config)))) == config
