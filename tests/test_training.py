"""The loop: what is stored is what happened, updates come when they are due, and lines say what was measured."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cic import api as workflow
from cic.core.config import to_dict
from cic.runs.folder import Run
from cic.training.loop import Loop
from cic.training.settings import override, pretrain_defaults

SMALL: dict[str, Any] = {"hidden": 16, "batch": 16, "warmup": 40, "log_every": 20}
TASK = "gridworld-reach_top_left"


@dataclass
class Tape:
    """Everything that passed between the loop, its agent and its environment."""

    obs: list[np.ndarray] = field(default_factory=list)
    skill: list[np.ndarray] = field(default_factory=list)
    action: list[np.ndarray] = field(default_factory=list)
    after: list[np.ndarray] = field(default_factory=list)
    reward: list[np.ndarray] = field(default_factory=list)
    rewards: list[dict[str, np.ndarray]] = field(default_factory=list)
    done: list[np.ndarray] = field(default_factory=list)
    reset: list[np.ndarray] = field(default_factory=list)
    """Which copies began a new episode before the step."""
    acted: list[int] = field(default_factory=list)
    """Steps at which the policy was asked."""


def record(loop: Loop) -> Tape:
    tape = Tape()
    step, reset, act, copies = loop.env.step, loop.env.reset, loop.agent.act, loop.config.num_envs

    def watched_step(action: np.ndarray) -> Any:
        tape.obs.append(loop.obs.copy())
        tape.skill.append(loop.skills().copy())
        tape.action.append(action.copy())
        outcome = step(action)
        tape.after.append(outcome[0].copy())
        tape.reward.append(outcome[1].copy())
        tape.rewards.append(outcome[4]["rewards"])
        tape.done.append(outcome[2] | outcome[3])
        tape.reset.append(np.zeros(copies, np.bool_))
        return outcome

    def watched_reset(**arguments: Any) -> Any:
        if arguments.get("options"):
            tape.reset[-1] |= arguments["options"]["reset_mask"]
        return reset(**arguments)

    def watched_act(obs: np.ndarray, skill: np.ndarray, **options: Any) -> Any:
        if options.get("explore"):
            tape.acted.append(loop.step)
            assert (obs == loop.obs).all()
            assert (skill == loop.skills()).all()
        return act(obs, skill, **options)

    loop.env.step, loop.env.reset, loop.agent.act = watched_step, watched_reset, watched_act  # type: ignore[method-assign]
    return tape


def pretraining(path: Path, domain: str = "gridworld", **settings: Any) -> Loop:
    config = override(pretrain_defaults(domain, "cic", "smoke"), {"skill_dim": 4} | SMALL | settings)
    return workflow.build(Run.create(path, "pretrain", to_dict(config), "1"), quiet=True)


@pytest.fixture(scope="module")
def skills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("training") / "skills"
    pretraining(path, steps=60).train()
    return path


def finetuning(path: Path, skills: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Loop:
    """As `finetune` builds it, but not yet run."""
    held: list[Loop] = []

    def hold(loop: Loop) -> dict[str, Any]:
        held.append(loop)
        return {}

    monkeypatch.setattr(Loop, "train", hold)
    settings = {"eval_every": 1000, "eval_episodes": 2, "trial_steps": 5} | SMALL | settings
    workflow.finetune(skills, TASK, scale="smoke", out=path, quiet=True, **settings)
    monkeypatch.undo()
    return held[0]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def stored(loop: Loop, copy: int) -> list[tuple[Any, ...]]:
    """A copy's records in the replay, oldest first: (obs, action, reward, skill), or (obs,) at an episode's end."""
    replay, result = loop.replay, []
    assert replay.written[copy] <= replay.slots, "the tests here read a ring that is not yet full"
    for at in range(copy * replay.slots, copy * replay.slots + int(replay.written[copy])):
        number = int(replay.skill_id[at])
        row: tuple[Any, ...] = (tuple(replay.obs[at]),)
        if number >= 0:
            skill = replay.skills[number % len(replay.skills)]
            row += (tuple(replay.action[at]), float(replay.reward[at]), tuple(skill))
        result.append(row)
    return result


def happened(tape: Tape, copy: int) -> list[tuple[Any, ...]]:
    result: list[tuple[Any, ...]] = []
    for t, obs in enumerate(tape.obs):
        row = (tuple(obs[copy]), tuple(tape.action[t][copy]), float(tape.reward[t][copy]), tuple(tape.skill[t][copy]))
        result.append(row)
        if tape.reset[t][copy]:
            result.append((tuple(tape.after[t][copy]),))
    return result


# ---- what is stored --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_envs", [1, 3])
def test_the_replay_holds_what_happened(tmp_path: Path, num_envs: int) -> None:
    loop = pretraining(tmp_path / "run", steps=360, num_envs=num_envs, skill_every=7)
    tape = record(loop)
    loop.train()
    assert len(tape.obs) == 360 // num_envs
    ends = np.array(tape.done)
    assert ends[49::50].all(), "episodes of the gridworld have 50 steps"
    assert ends.sum() == num_envs * (360 // num_envs // 50)
    assert (np.array(tape.reset) == ends).all()
    for copy in range(num_envs):
        assert stored(loop, copy) == happened(tape, copy)


def test_each_step_begins_where_the_one_before_ended_or_anew(tmp_path: Path) -> None:
    loop = pretraining(tmp_path / "run", steps=160, num_envs=2)
    tape = record(loop)
    loop.train()
    for t in range(1, len(tape.obs)):
        going_on = ~tape.done[t - 1]
        assert (tape.obs[t][going_on] == tape.after[t - 1][going_on]).all()
        assert (abs(tape.obs[t][tape.done[t - 1]]) < 0.2).all(), "a new episode starts in the middle"


def test_skills_last_their_time_and_end_with_the_episode(tmp_path: Path) -> None:
    loop = pretraining(tmp_path / "run", steps=160, skill_every=7)
    tape = record(loop)
    loop.train()
    age = 0
    for t in range(1, 160):
        age += 1
        changes = age == 7 or bool(tape.done[t - 1][0])
        assert (tape.skill[t][0] != tape.skill[t - 1][0]).any() == changes
        age = 0 if changes else age


# ---- when it acts and learns -----------------------------------------------------------------------------------


def test_actions_are_uniform_in_the_warm_up_and_the_policys_after_it(tmp_path: Path) -> None:
    loop = pretraining(tmp_path / "run", steps=1600, warmup=1500, log_every=1000, checkpoint_every=10_000)
    tape = record(loop)
    loop.train()
    assert tape.acted == list(range(1500, 1600))
    drawn = np.array(tape.action[:1500]).ravel()
    counts = np.histogram(drawn, bins=10, range=(-1, 1))[0]
    assert counts.sum() == 3000
    assert abs(counts - 300).max() < 5 * np.sqrt(300)


@pytest.mark.parametrize(("num_envs", "update_every", "warmup"), [(1, 2, 40), (3, 2, 40), (1, 3, 40), (4, 1, 0)])
def test_one_update_per_so_many_steps_after_the_warm_up(
    tmp_path: Path, num_envs: int, update_every: int, warmup: int
) -> None:
    settings = {"num_envs": num_envs, "update_every": update_every, "warmup": warmup, "steps": 100}
    loop = pretraining(tmp_path / "run", **settings)
    updated_at: list[int] = []
    learn = loop.agent.update

    def watch(batch: Any, **options: Any) -> Any:
        updated_at.append(loop.step)
        assert len(batch.obs) == 16
        return learn(batch, **options)

    loop.agent.update = watch  # type: ignore[method-assign]
    loop.train()
    total = -(-100 // num_envs) * num_envs
    assert len(updated_at) == (total - warmup) // update_every == lines(tmp_path / "run")[-1]["update"]
    for index, step in enumerate(updated_at):
        due = warmup + (index + 1) * update_every
        assert step >= due, "no update before its step"
        assert step < due + num_envs or step <= 5 * num_envs, "nor later, once there is something to sample"


# ---- finetuning ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("skip", [0, 2])
def test_trials_are_scored_by_what_their_candidate_earned(
    tmp_path: Path, skills: Path, monkeypatch: pytest.MonkeyPatch, num_envs: int, skip: int
) -> None:
    settings = {"trial_steps": 4, "trial_skip": skip, "num_envs": num_envs}
    loop = finetuning(tmp_path / "run", skills, monkeypatch, steps=60, **settings)
    tape = record(loop)
    tape_rng = np.random.default_rng(0)
    step = loop.env.step

    def pay(action: np.ndarray) -> Any:
        obs, reward, *rest = step(action)
        reward[:] = tape.reward[-1][:] = tape_rng.random(num_envs)
        return obs, reward, *rest

    loop.env.step = pay  # type: ignore[method-assign]
    loop.train()
    table = json.loads((tmp_path / "run" / "trials.json").read_text())
    trials = table["trials"]
    assert len(trials) == 10
    ticks = 4 // num_envs
    for index, trial in enumerate(trials):
        span = slice(index * ticks, (index + 1) * ticks)
        assert trial["steps"] == 4
        counted = tape.reward[span][skip // num_envs :]
        assert trial["return"] == pytest.approx(float(np.sum(counted)), rel=1e-6)
        np.testing.assert_allclose(np.array(tape.skill[span]), index / 9, atol=1e-6)
    best = int(np.argmax([trial["return"] for trial in trials]))
    assert table["chosen"] == best
    np.testing.assert_allclose(np.array(tape.skill[40 // num_envs :]), best / 9, atol=1e-6)
    assert tape.acted == list(range(0, 60, num_envs)), "the policy acts while candidates are scored"
    for copy in range(num_envs):
        assert stored(loop, copy) == happened(tape, copy), "all of the search goes into the replay"


def test_updates_due_in_a_long_search_are_made_at_its_end_on_the_critic_alone(
    tmp_path: Path, skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = finetuning(tmp_path / "run", skills, monkeypatch, steps=60, warmup=20, search=40)
    before = [parameter.clone() for parameter in loop.agent.actor.parameters()]
    seen: list[tuple[int, bool]] = []
    learn = loop.agent.update

    def watch(batch: Any, **options: Any) -> Any:
        metrics = learn(batch, **options)
        moved = any((new != old).any() for new, old in zip(loop.agent.actor.parameters(), before, strict=True))
        seen.append((loop.step, moved))
        return metrics

    loop.agent.update = watch  # type: ignore[method-assign]
    loop.train()
    assert len(json.loads((tmp_path / "run" / "trials.json").read_text())["trials"]) == 8
    assert seen == [(40, False)] * 10 + [(step, True) for step in range(42, 62, 2)]


def test_every_step_teaches_the_chosen_skill(tmp_path: Path, skills: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = finetuning(tmp_path / "run", skills, monkeypatch, steps=60)
    taught: list[np.ndarray] = []
    learn = loop.agent.update

    def watch(batch: Any, **options: Any) -> Any:
        taught.append(batch.skill.numpy().copy())
        return learn(batch, **options)

    loop.agent.update = watch  # type: ignore[method-assign]
    result = loop.train()
    assert len(taught) == 10
    assert (np.concatenate(taught) == np.float32(result["skill"])).all()


def test_a_given_skill_is_used_throughout_and_leaves_no_trials(
    tmp_path: Path, skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = finetuning(tmp_path / "run", skills, monkeypatch, steps=60, skill=(0.25,))
    tape = record(loop)
    loop.train()
    assert (np.array(tape.skill) == 0.25).all()
    assert tape.acted == list(range(40, 60)), "uniform actions first, as the released code does"
    assert not (tmp_path / "run" / "trials.json").exists()
    assert json.loads((tmp_path / "run" / "result.json").read_text())["skill"] == [0.25] * 4


def test_evaluations_do_not_disturb_the_training(tmp_path: Path, skills: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for every in (7, 1000):
        path = tmp_path / str(every)
        finetuning(path, skills, monkeypatch, steps=80, eval_every=every).train()
        seen.append([line for line in lines(path) if "eval/return" not in line])
        evaluated = [line["step"] for line in lines(path) if "eval/return" in line]
        assert evaluated == [*range(every, 80, every), 80]
    assert seen[0] == seen[1]


def test_the_result_is_the_mean_return_of_the_last_evaluation(
    tmp_path: Path, skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = finetuning(tmp_path / "run", skills, monkeypatch, steps=60, eval_episodes=3)
    result = loop.train()
    assert result == json.loads((tmp_path / "run" / "result.json").read_text())
    assert len(result["returns"]) == 3
    assert result["return"] == pytest.approx(np.mean(result["returns"]))
    last = lines(tmp_path / "run")[-1]
    assert last["eval/return"] == result["return"]
    assert last["eval/std"] == pytest.approx(np.std(result["returns"]))


# ---- what is logged --------------------------------------------------------------------------------------------


def test_lines_come_on_time_and_hold_the_diagnostics(tmp_path: Path) -> None:
    loop = pretraining(tmp_path / "run", steps=110)
    loop.train()
    found = lines(tmp_path / "run")
    assert [line["step"] for line in found] == [0, 20, 40, 60, 80, 100, 110]
    assert set(found[-1]) >= {
        "update",
        "representation/loss",
        "critic/loss",
        "actor/loss",
        "reward/intrinsic",
        "skill/accuracy",
        "skill/chance",
        "embedding/effective_rank",
        "coverage/fraction",
        "coverage/cells",
    }
    assert all(isinstance(value, int | float) for line in found for value in line.values())


def test_zero_shot_returns_are_those_of_the_episodes_that_ended(tmp_path: Path) -> None:
    loop = pretraining(tmp_path / "run", steps=330, num_envs=2, log_every=100)
    tape = record(loop)
    loop.train()
    expected: dict[str, list[float]] = {}
    for first in (0, 50, 100):
        for copy in range(2):
            for task in loop.env.tasks:
                total = sum(float(rewards[task][copy]) for rewards in tape.rewards[first : first + 50])
                expected.setdefault(task, []).append(total)
    found = lines(tmp_path / "run")
    for task, returns in expected.items():
        logged = [line[f"zero_shot/{task}"] for line in found if f"zero_shot/{task}" in line]
        assert len(logged) == 3
        np.testing.assert_allclose(logged, np.array(returns).reshape(3, 2).mean(axis=1))


def test_coverage_counts_the_cells_of_every_observation(tmp_path: Path) -> None:
    loop = pretraining(tmp_path / "run", "point_mass", steps=200, num_envs=2, log_every=30)
    tape = record(loop)
    loop.train()
    seen = np.concatenate(tape.obs)
    cells = {tuple(np.clip((row[:2] + 0.29) / 0.58 * 20, 0, 19).astype(int)) for row in seen.astype(np.float64)}
    last = lines(tmp_path / "run")[-1]
    assert last["coverage/cells"] == len(cells)
    assert last["coverage/fraction"] == pytest.approx(len(cells) / 400)


def test_tensorboard_has_the_same_numbers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    pretraining(tmp_path / "run", steps=80).train()
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    board.Reload()
    for name in ("critic/loss", "coverage/cells"):
        shown = [(event.step, event.value) for event in board.Scalars(name)]
        known = [(line["step"], line[name]) for line in lines(tmp_path / "run") if name in line]
        assert shown == [(step, pytest.approx(value)) for step, value in known]


@pytest.mark.parametrize("num_envs", [1, 2])
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, num_envs: int) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        pretraining(tmp_path / name, "point_mass", steps=80, num_envs=num_envs, seed=seed).train()
    first, second, third = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in "abc")
    assert first == second != third
    weights = "checkpoints/000000080/agent.safetensors"
    assert (tmp_path / "a" / weights).read_bytes() == (tmp_path / "b" / weights).read_bytes()


# ---- what is kept ----------------------------------------------------------------------------------------------


def test_a_milestone_is_the_agent_at_its_step(tmp_path: Path) -> None:
    pretraining(tmp_path / "run", steps=100, checkpoint_every=60, milestones=(0, 60, 90, 500)).train()
    run = Run(tmp_path / "run")
    assert [int(folder.name) for folder in run.milestones()] == [60, 90]
    kept, saved = (folder / "agent.safetensors" for folder in (run.milestones()[0], run.checkpoints()[0]))
    assert kept.read_bytes() == saved.read_bytes()


def test_status_follows_the_run(tmp_path: Path) -> None:
    loop = pretraining(tmp_path / "run", steps=80)
    seen: list[str] = []
    step = loop.env.step

    def watch(action: np.ndarray) -> Any:
        seen.append(json.loads((tmp_path / "run" / "status.json").read_text())["state"])
        return step(action)

    loop.env.step = watch  # type: ignore[method-assign]
    loop.train()
    assert set(seen) == {"running"}
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "finished"


def test_an_error_in_the_environment_is_kept_in_the_status_and_frees_the_run(tmp_path: Path) -> None:
    loop = pretraining(tmp_path / "run", steps=80)

    def fail(action: np.ndarray) -> Any:
        raise RuntimeError("the simulation became unstable")

    loop.env.step = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="unstable"):
        loop.train()
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["message"]) == ("failed", "the simulation became unstable")
    assert workflow.resume(tmp_path / "run", quiet=True).result["step"] == 80


def test_training_works_outside_of_the_main_thread(tmp_path: Path) -> None:
    """Where signals cannot be caught."""
    loop = pretraining(tmp_path / "run", steps=60)
    thread = threading.Thread(target=loop.train)
    thread.start()
    thread.join()
    assert Run(tmp_path / "run").finished
