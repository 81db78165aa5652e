"""The loop and its scripts: what is stored is what happened, updates are made when due, metrics are logged."""

from __future__ import annotations

import json
import signal
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import (
    FakeAgent,
    FakeEnv,
    FakeObjective,
    PoisonedAgent,
    Tape,
    WatchedAgent,
    WatchedEnv,
    finetune_config,
    make_loop,
    plain_script,
    pretrain_config,
    stop,
)

from cic import api, envs
from cic.core.errors import Interrupted, UserError
from cic.runs.folder import Run
from cic.training.finetuning import finetune
from cic.training.loop import Diverged, Loop


def watched(path: Path, kind: str, config: Any, lengths: list[int], script: Any = None) -> tuple[Loop[Any], Tape]:
    """A loop of fakes with a tape of everything."""
    tape = Tape()
    env, agent = WatchedEnv(FakeEnv(lengths), tape), WatchedAgent(FakeAgent(), tape)
    return make_loop(path, kind, config, env, agent, script), tape


def bare(path: Path, lengths: list[int], **settings: Any) -> tuple[Loop[Any], Tape]:
    """Nothing but the loop is real."""
    config = pretrain_config(num_envs=len(lengths), **{"warmup": 0} | settings)
    return watched(path, "pretrain", config, lengths, plain_script)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def status(path: Path) -> dict[str, Any]:
    return json.loads((path / "status.json").read_text())  # type: ignore[no-any-return]


def stored(loop: Loop[Any], copy: int) -> list[tuple[Any, ...]]:
    """A copy's records in the replay, oldest first: (obs, action, reward, ended, skill), or (obs,) at an end."""
    replay, result = loop.replay, []
    assert replay.written[copy] <= replay.slots, "the tests here read a ring that is not yet full"
    for at in range(copy * replay.slots, copy * replay.slots + int(replay.written[copy])):
        row: tuple[Any, ...] = (tuple(replay.obs[at]),)
        if not replay.episode_end[at]:
            skill = replay.skills[replay.skill_id[at] % len(replay.skills)]
            what = (float(replay.reward[at]), tuple(replay.task_rewards[at]), bool(replay.terminated[at]))
            row += (tuple(replay.action[at]), *what, tuple(skill))
        result.append(row)
    return result


def happened(tape: Tape, copy: int) -> list[tuple[Any, ...]]:
    result: list[tuple[Any, ...]] = []
    for t, obs in enumerate(tape.obs):
        paid = tuple(rewards[copy] for rewards in tape.rewards[t].values())
        ended = bool(tape.done[t][copy]) and copy % 2 == 0  # a fake's odd copies end by their time limit
        what = (float(tape.reward[t][copy]), paid, ended)
        result.append((tuple(obs[copy]), tuple(tape.action[t][copy]), *what, tuple(tape.skill[t][copy])))
        if tape.reset[t][copy]:
            result.append((tuple(tape.after[t][copy]),))
    return result


# ---- the loop: what is stored ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [[50], [50, 50, 50], [5, 9, 13]])
def test_the_replay_holds_what_happened(tmp_path: Path, lengths: list[int]) -> None:
    copies = len(lengths)
    loop, tape = bare(tmp_path / "run", lengths, steps=120 * copies)
    loop.train()
    assert len(tape.obs) == 120
    ends = np.array(tape.done)
    assert ends.sum(axis=0).tolist() == [120 // length for length in lengths]
    assert (np.array(tape.reset) == ends).all(), "whoever ended begins anew, and nobody else"
    for copy in range(copies):
        assert stored(loop, copy) == happened(tape, copy)


def test_each_step_starts_where_the_previous_one_ended_or_after_a_reset(tmp_path: Path) -> None:
    loop, tape = bare(tmp_path / "run", [7, 11], steps=160)
    loop.train()
    for t in range(1, len(tape.obs)):
        ended = tape.done[t - 1]
        assert (tape.obs[t][~ended] == tape.after[t - 1][~ended]).all()
        assert (tape.obs[t][ended, 1] == 0).all()
        assert (tape.obs[t][ended, 0] == tape.after[t - 1][ended, 0] + 1).all(), "the next episode"


def test_the_environment_is_closed_whatever_happens(tmp_path: Path) -> None:
    loop, _ = bare(tmp_path / "run", [9], steps=20)
    loop.train()
    assert loop.env.closed


# ---- the loop: when it learns ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("copies", "update_every", "warmup"), [(1, 2, 40), (3, 2, 40), (1, 3, 40), (4, 1, 0)])
def test_one_update_per_so_many_steps_after_the_warm_up(
    tmp_path: Path, copies: int, update_every: int, warmup: int
) -> None:
    settings = {"update_every": update_every, "warmup": warmup, "steps": 100}
    loop, tape = bare(tmp_path / "run", [50] * copies, **settings)
    loop.train()
    total = -(-100 // copies) * copies
    assert len(tape.updates) == (total - warmup) // update_every == lines(tmp_path / "run")[-1]["update"]
    for index, (tick, _) in enumerate(tape.updates):
        due = warmup + (index + 1) * update_every
        assert tick * copies >= due, "no update before its step"
        assert tick * copies < due + copies or tick <= 5, "nor later, once there is something to sample"
    assert all(len(batch.obs) == 16 for batch in tape.batches)


# ---- the loop: what is logged ----------------------------------------------------------------------------------


def test_lines_come_on_time(tmp_path: Path) -> None:
    loop, _ = bare(tmp_path / "run", [30], steps=110, warmup=40)
    loop.train()
    found = lines(tmp_path / "run")
    assert [line["step"] for line in found] == [0, 20, 40, 60, 80, 100, 110]
    assert "critic/loss" in found[-1]
    assert "critic/loss" not in found[0]


def test_returns_are_those_of_the_episodes_that_ended(tmp_path: Path) -> None:
    loop, tape = bare(tmp_path / "run", [50, 50], steps=330, log_every=100)
    loop.train()
    expected: dict[str, list[float]] = {}
    for first in (0, 50, 100):
        for copy in range(2):
            for task in loop.env.tasks:
                total = sum(float(rewards[task][copy]) for rewards in tape.rewards[first : first + 50])
                expected.setdefault(task, []).append(total)
    for task, returns in expected.items():
        logged = [line[f"zero_shot/{task}"] for line in lines(tmp_path / "run") if f"zero_shot/{task}" in line]
        assert len(logged) == 3
        np.testing.assert_allclose(logged, np.array(returns).reshape(3, 2).mean(axis=1), rtol=1e-6)


def test_tensorboard_has_the_same_numbers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    bare(tmp_path / "run", [50], steps=80)[0].train()
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    board.Reload()
    for name in ("critic/loss", "reward/intrinsic"):
        shown = [(event.step, event.value) for event in board.Scalars(name)]
        known = [(line["step"], line[name]) for line in lines(tmp_path / "run") if name in line]
        assert len(known) > 2
        assert shown == [(step, pytest.approx(value)) for step, value in known]


# ---- the loop: how it ends -------------------------------------------------------------------------------------


def test_status_follows_the_run(tmp_path: Path) -> None:
    loop, _ = bare(tmp_path / "run", [50], steps=80)
    seen: list[str] = []
    loop.env.events |= {tick: lambda: seen.append(status(tmp_path / "run")["state"]) for tick in range(80)}
    result = loop.train()
    assert seen == ["running"] * 80
    assert status(tmp_path / "run")["state"] == "finished"
    assert (
        result
        == {"script": "plain", "step": 80, "problems": {}}
        == json.loads((tmp_path / "run" / "result.json").read_text())
    )


def test_an_error_in_the_environment_is_kept_in_the_status_and_frees_the_run(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("the simulation became unstable")

    loop, _ = bare(tmp_path / "run", [50], steps=80, checkpoint_every=30)
    loop.env.events[45] = fail
    with pytest.raises(RuntimeError, match="unstable"):
        loop.train()
    assert loop.env.closed
    found = status(tmp_path / "run")
    assert (found["state"], found["message"]) == ("failed", "the simulation became unstable")
    again, tape = bare(tmp_path / "run", [50], steps=80, checkpoint_every=30)
    assert again.train()["step"] == 80
    assert len(tape.obs) == 50, "from the checkpoint of step 30"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_finishes_the_step_saves_and_stops(tmp_path: Path, number: signal.Signals) -> None:
    loop, tape = bare(tmp_path / "run", [50], steps=80)
    loop.env.events[36] = stop(number)
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=rf"{number.name}: saved at step 37; continue with `cic pretrain --resume"):
        loop.train()
    assert signal.getsignal(number) is before
    assert len(tape.done) == 37
    assert [int(folder.name) for folder in Run(tmp_path / "run").checkpoints()] == [37]
    found = status(tmp_path / "run")
    assert (found["state"], found["step"], found["message"]) == ("interrupted", 37, f"stopped by {number.name}")


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    loop, tape = bare(tmp_path / "run", [50], steps=80)
    loop.env.events[36] = lambda: [stop()() for _ in range(2)]
    with pytest.raises(KeyboardInterrupt):
        loop.train()
    assert len(tape.done) == 36
    assert status(tmp_path / "run")["state"] == "failed"


def test_an_environment_that_cannot_go_on_is_reset_and_nothing_crosses_the_gap(tmp_path: Path) -> None:
    loop, _ = bare(tmp_path / "run", [50, 50], steps=160)
    loop.env.events[30] = stop()
    with pytest.raises(Interrupted):
        loop.train()
    again, tape = bare(tmp_path / "run", [50, 50], steps=160)
    again.env.exact_state = False
    again.train()
    assert (tape.obs[0][:, 1] == 0).all(), "at an episode's beginning"
    for copy in range(2):
        at = copy * again.replay.slots + 31
        assert again.replay.episode_end[at], "the episode before it has ended"
        assert again.replay.obs[at][1] == 31


def test_training_works_outside_of_the_main_thread(tmp_path: Path) -> None:
    """Where signals cannot be caught."""
    loop, _ = bare(tmp_path / "run", [50], steps=60)
    thread = threading.Thread(target=loop.train)
    thread.start()
    thread.join()
    assert Run(tmp_path / "run").finished


# ---- the loop: numbers that are none ---------------------------------------------------------------------------


@pytest.mark.parametrize("log_every", [10, 1000])
def test_what_is_no_number_stops_the_run_before_it_is_saved(tmp_path: Path, log_every: int) -> None:
    config = pretrain_config(steps=200, checkpoint_every=30, log_every=log_every, warmup=40)

    def start(poisoned_at: int | None) -> Loop[Any]:
        return make_loop(tmp_path / "run", "pretrain", config, FakeEnv([50]), FakeAgent(poisoned_at), plain_script)

    with pytest.raises(
        Diverged, match=r"critic/loss became nan by step [89].*checkpoint is that of step 60; a smaller"
    ):
        start(20).train()  # at step 40 + 2 · 20 = 80
    assert status(tmp_path / "run")["state"] == "failed"
    assert "critic/loss" in status(tmp_path / "run")["message"]
    assert [int(folder.name) for folder in Run(tmp_path / "run").checkpoints()] == [30, 60]
    assert start(None).train()["step"] == 200


@pytest.mark.parametrize(
    ("name", "metric"), [("next_obs", "representation/loss"), ("action", "critic/loss"), ("discount", "critic/loss")]
)
def test_the_metric_that_first_was_none_is_named(tmp_path: Path, name: str, metric: str) -> None:
    config = pretrain_config(steps=90, checkpoint_every=30, log_every=10)
    agent = PoisonedAgent(api.make_agent(config), name, 20)
    with pytest.raises(Diverged, match=rf"^{metric} became nan by step 8"):
        make_loop(tmp_path / "run", "pretrain", config, agent=agent).train()
    weights, step = Run(tmp_path / "run").weights()
    assert step == 60
    assert all(torch.isfinite(value).all() for value in weights.values())


def test_what_is_no_number_is_found_before_an_evaluation(tmp_path: Path) -> None:
    config = finetune_config(steps=100, eval_every=51, log_every=1000)
    agent = PoisonedAgent(api.make_agent(config), "reward", 5)
    with pytest.raises(Diverged, match=r"^critic/loss became nan by step 5"):
        make_loop(tmp_path / "run", "finetune", config, agent=agent).train()


def test_actions_must_be_numbers(tmp_path: Path) -> None:
    class Lost(FakeAgent):
        def act(self, obs: np.ndarray, skill: np.ndarray, *, explore: bool = False, actor: Any = None) -> np.ndarray:
            return np.full((len(obs), 2), np.nan, np.float32)

    config = pretrain_config(steps=20)
    loop = make_loop(tmp_path / "run", "pretrain", config, FakeEnv([9]), Lost(), plain_script)
    with pytest.raises(Diverged, match="actions are not finite at step 0: there is no checkpoint yet"):
        loop.train()


# ---- problems that the objective reports ------------------------------------------------------------------------


class Collapsing(FakeObjective):
    def problems(self, numbers: Mapping[str, float]) -> dict[str, str]:
        return {"collapse": "all embeddings are equal; use a larger batch"} if "critic/loss" in numbers else {}


def test_a_problem_is_reported_once_also_across_a_resume_and_is_part_of_the_result(tmp_path: Path) -> None:
    def start() -> Loop[Any]:
        loop, _ = bare(tmp_path / "run", [50], steps=120)
        loop.agent.objective = Collapsing(FakeAgent.spaces, 1, None)
        return loop

    loop = start()
    loop.env.events[70] = stop()  # type: ignore[attr-defined]
    message = r"all embeddings are equal; use a larger batch \(step 60\)"
    with pytest.warns(UserWarning, match=message) as seen, pytest.raises(Interrupted):
        loop.train()
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = start().train()
    assert result["problems"] == {"collapse": "all embeddings are equal; use a larger batch (step 60)"}


# ---- pre-training ----------------------------------------------------------------------------------------------


def pretraining(path: Path, lengths: list[int], **settings: Any) -> tuple[Loop[Any], Tape]:
    return watched(path, "pretrain", pretrain_config(num_envs=len(lengths), **settings), lengths)


def test_skills_last_their_time_and_end_with_the_episode(tmp_path: Path) -> None:
    loop, tape = pretraining(tmp_path / "run", [50], steps=160, warmup=0)
    loop.train()
    age = 0
    for t in range(1, 160):
        age += 1
        changes = age == 7 or bool(tape.done[t - 1][0])
        assert (tape.skill[t][0] != tape.skill[t - 1][0]).any() == changes
        age = 0 if changes else age


def test_actions_are_uniform_in_the_warm_up_and_the_policys_after_it(tmp_path: Path) -> None:
    settings = {"steps": 1600, "warmup": 1500, "log_every": 1000, "checkpoint_every": 10_000}
    loop, tape = pretraining(tmp_path / "run", [50], **settings)
    loop.train()
    assert tape.acted == list(range(1500, 1600))
    drawn = np.array(tape.action[:1500]).ravel()
    counts = np.histogram(drawn, bins=10, range=(-1, 1))[0]
    assert counts.sum() == 3000
    assert abs(counts - 300).max() < 5 * np.sqrt(300)


def test_coverage_counts_the_cells_of_every_observation(tmp_path: Path) -> None:
    loop, tape = pretraining(tmp_path / "run", [6, 15], steps=200, log_every=30)
    loop.train()
    ends = [after[end] for after, end in zip(tape.after, tape.reset, strict=True)]
    cells = {tuple(np.clip(row, 0, 19).astype(int)) for row in np.concatenate([*tape.obs, *ends])}  # cells of size one
    last = lines(tmp_path / "run")[-1]
    assert last["coverage/cells"] == len(cells) > 30
    assert last["coverage/fraction"] == pytest.approx(last["coverage/cells"] / 400)


def test_lines_hold_the_diagnostics(tmp_path: Path) -> None:
    make_loop(tmp_path / "run", "pretrain", pretrain_config(steps=60)).train()
    found = lines(tmp_path / "run")
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


def test_a_milestone_is_the_agent_at_its_step(tmp_path: Path) -> None:
    loop, _ = pretraining(tmp_path / "run", [50], steps=100, checkpoint_every=60, milestones=(0, 60, 90, 500))
    loop.train()
    run = Run(tmp_path / "run")
    assert [int(folder.name) for folder in run.milestones()] == [60, 90]
    kept, saved = (folder / "agent.safetensors" for folder in (run.milestones()[0], run.checkpoints()[0]))
    assert kept.read_bytes() == saved.read_bytes()


@pytest.mark.parametrize("num_envs", [1, 2])
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, num_envs: int) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        config = pretrain_config("point_mass", steps=80, num_envs=num_envs, seed=seed)
        make_loop(tmp_path / name, "pretrain", config).train()
    first, second, third = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in "abc")
    assert first == second != third
    weights = "checkpoints/000000080/agent.safetensors"
    assert (tmp_path / "a" / weights).read_bytes() == (tmp_path / "b" / weights).read_bytes()


# ---- finetuning ------------------------------------------------------------------------------------------------


def finetuning(path: Path, copies: int = 1, **settings: Any) -> tuple[Loop[Any], Tape]:
    return watched(path, "finetune", finetune_config(num_envs=copies, **settings), [50] * copies)


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("skip", [0, 2])
def test_trials_are_scored_by_what_their_candidate_earned(tmp_path: Path, copies: int, skip: int) -> None:
    loop, tape = finetuning(tmp_path / "run", copies, trial_steps=4, trial_skip=skip, steps=60)
    loop.train()
    table = json.loads((tmp_path / "run" / "trials.json").read_text())
    trials = table["trials"]
    assert (table["search"], len(trials)) == ("grid", 10)
    ticks = 4 // copies
    for index, trial in enumerate(trials):
        span = slice(index * ticks, (index + 1) * ticks)
        assert trial["steps"] == 4
        counted = tape.reward[span][skip // copies :]
        assert trial["return"] == pytest.approx(float(np.sum(counted)), rel=1e-5)
        np.testing.assert_allclose(np.array(tape.skill[span]), index / 9, atol=1e-6)
    best = int(np.argmax([trial["return"] for trial in trials]))
    assert table["chosen"] == best
    np.testing.assert_allclose(np.array(tape.skill[40 // copies :]), best / 9, atol=1e-6)
    assert tape.acted == list(range(60 // copies)), "the policy acts while candidates are scored"
    for copy in range(copies):
        assert stored(loop, copy) == happened(tape, copy), "all of the search goes into the replay"


def test_updates_due_in_a_long_search_are_made_at_its_end_on_the_critic_alone(tmp_path: Path) -> None:
    loop, tape = finetuning(tmp_path / "run", steps=60, warmup=20, search_steps=40)
    loop.train()
    assert len(json.loads((tmp_path / "run" / "trials.json").read_text())["trials"]) == 8
    assert tape.updates == [(40, False)] * 10 + [(step, True) for step in range(42, 62, 2)]


def test_every_step_teaches_the_chosen_skill(tmp_path: Path) -> None:
    loop, tape = finetuning(tmp_path / "run", steps=60)
    result = loop.train()
    assert len(tape.batches) == 10
    assert all((batch.skill.numpy() == np.float32(result["skill"])).all() for batch in tape.batches)


def test_a_given_skill_is_used_throughout_and_leaves_no_trials(tmp_path: Path) -> None:
    loop, tape = finetuning(tmp_path / "run", steps=60, skill=(0.25,) * 4)
    loop.train()
    assert (loop.replay.skills[: loop.replay.next_skill_id] == 0.25).all()
    assert (np.array(tape.skill) == 0.25).all()
    assert tape.acted == list(range(40, 60)), "uniform actions first, as the released code does"
    assert not (tmp_path / "run" / "trials.json").exists()
    assert json.loads((tmp_path / "run" / "result.json").read_text())["skill"] == [0.25] * 4


def test_evaluations_do_not_disturb_the_training(tmp_path: Path) -> None:
    seen = []
    for every in (7, 1000):
        path = tmp_path / str(every)
        make_loop(path, "finetune", finetune_config(steps=80, eval_every=every)).train()
        seen.append([line for line in lines(path) if "eval/return" not in line])
        evaluated = [line["step"] for line in lines(path) if "eval/return" in line]
        assert evaluated == [step for step in range(every, 80, every) if step > 40] + [80], "once it trains"
    assert seen[0] == seen[1]


def test_the_result_is_the_mean_return_of_the_last_evaluation(tmp_path: Path) -> None:
    loop, _ = finetuning(tmp_path / "run", steps=60, eval_episodes=3)
    result = loop.train()
    assert result == json.loads((tmp_path / "run" / "result.json").read_text())
    assert len(result["returns"]) == 3
    assert result["return"] == pytest.approx(np.mean(result["returns"]))
    last = lines(tmp_path / "run")[-1]
    assert last["eval/return"] == result["return"]
    assert last["eval/std"] == pytest.approx(np.std(result["returns"]))


def test_a_search_that_does_not_fit_is_refused_before_anything_runs(tmp_path: Path) -> None:
    config = finetune_config(search="each")
    with pytest.raises(UserError, match="`each` does not fit box skills"):
        Loop(Run.plan(tmp_path / "run", "finetune", {}), config, envs.make(config.task), FakeAgent(), finetune)
    assert not (tmp_path / "run").exists()
