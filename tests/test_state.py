"""Every part with a state: asking for it changes nothing, and from it everything goes on as if nothing had happened.

Hypothesis finds the moments. Whole runs are stopped at odd steps, with one copy and several, and must end with the
bytes of the run that nobody stopped.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from fakes import FakeAgent, FakeEnv, WatchedEnv, finetune_config, make_loop, plain_script, pretrain_config, stop
from helpers import steady
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cic import api, cli, envs
from cic.core.errors import Interrupted
from cic.core.types import Needs, Spaces
from cic.learning.agent import build_agent
from cic.learning.learners import get_learner
from cic.learning.learners.base import learners_for
from cic.learning.objectives import SkillSpace, get_objective, objectives
from cic.learning.replay import Replay
from cic.runs.folder import Inheritance
from cic.training.library import Library
from cic.training.loop import Loop
from cic.training.script import Segment
from cic.training.searches import searches
from cic.training.settings import override, pretrain_defaults
from cic.training.skill_schedule import SkillSchedule


@pytest.fixture(autouse=True, scope="module")
def short_regressions() -> Iterator[None]:
    """A search asks for hundreds of them here, and whether they are any good does not matter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cic.training.library.UPDATES", 3)
        patch.setattr("cic.training.relabelled_replay.UPDATES", 3)
        yield


class Setting(NamedTuple):
    """A run that is repeated with and without disturbances."""

    kind: str
    config: Any
    parts: Callable[[], tuple[Any, Any, Any]]
    """Makes the environment, the agent and what the run inherits."""
    script: Any = None


SCRIPTS = ("plain", "pretrain", "collection", "cma", "halving", "fixed")
TICKS = 60
COPIES = [1, 3, 8]


# ---- single parts ----------------------------------------------------------------------------------------------


class DrawnSkills:
    """Pre-training's skills, of 3 environments whose episodes end now and then."""

    def __init__(self, space: SkillSpace) -> None:
        self.rng, self.space = np.random.default_rng(0), space
        self.part = SkillSchedule(3, space.dim, self.rng)
        self.part.start_random(space)

    def tick(self, t: int) -> Any:
        self.part.advance(np.array([t % 7 == 0, t % 11 == 0, False]), self.space)
        return self.part.current.tolist(), self.part.started.tolist()

    def state(self) -> Any:
        return self.part.state(), self.rng.bit_generator.state

    def restore(self, state: Any) -> None:
        self.part.restore(state[0])
        self.rng.bit_generator.state = state[1]


class Remembered:
    """A replay that overflows, of 2 copies, sampled with everything that an objective may need."""

    needs = Needs(skill_start=True, path=4, goals=0.2)

    def __init__(self) -> None:
        self.part, self.rng = Replay(Spaces(3, 2), 2, 40, num_envs=2, tasks=1), np.random.default_rng(0)

    def tick(self, t: int) -> Any:
        rng = np.random.default_rng(t)
        obs, action, skill = (rng.random((2, dim), dtype=np.float32) for dim in (3, 2, 2))
        reward, done = rng.random(2, dtype=np.float32), np.array([t % 9 == 8, t % 13 == 12])
        skill = np.full((2, 2), t // 4, np.float32)
        self.part.add(obs, skill, action, reward, done & [True, False], task_rewards=reward[:, None])
        if done.any():
            self.part.finish(obs + 1, done)
        if not self.part.ready():
            return None
        batch = self.part.sample(4, self.rng, self.needs)
        return [tensor.tolist() for tensor in (*batch[:-1], *batch.extras.values())]

    def state(self) -> Any:
        return self.part.state(), self.rng.bit_generator.state

    def restore(self, state: Any) -> None:
        self.part.restore(state[0])
        self.rng.bit_generator.state = state[1]


class Learned:
    """An agent that explores and learns; its optimisers and its generator have a state too."""

    def __init__(self, objective: str, learner: str) -> None:
        config = get_learner(learner).Config(hidden=4, batch=8, lr=1e-2)
        self.part = build_agent(Spaces(3, 2), objective, get_objective(objective).Options(), learner, config)
        self.needs, self.dim = self.part.objective.needs, self.part.objective.skills.dim
        self.replay = Replay(Spaces(3, 2), self.dim, 100, nstep=self.needs.nstep or 3)
        rng = np.random.default_rng(0)
        for _ in range(50):
            obs, action, skill = (rng.random((1, dim), dtype=np.float32) for dim in (3, 2, self.dim))
            self.replay.add(obs, skill, action, np.ones(1, np.float32), np.zeros(1, np.bool_))

    def tick(self, t: int) -> Any:
        rng = np.random.default_rng(t)
        batches = [self.replay.sample(8, rng, self.needs) for _ in range(self.needs.batches)]
        metrics = self.part.update(*batches, intrinsic=True)
        action = self.part.act(np.ones((2, 3)), np.ones((2, self.dim)), explore=True)
        return action.tolist(), {name: float(value) for name, value in metrics.items()}

    def state(self) -> Any:
        return self.part.state_dict(), self.part.optimiser_state()

    def restore(self, state: Any) -> None:
        self.part.load_state_dict(state[0])
        self.part.restore_optimisers(state[1])


BOX, ONEHOT, SPHERE = SkillSpace("box", 4, every=5), SkillSpace("onehot", 4, every=5), SkillSpace("sphere", 4)
PARTS: dict[str, tuple[Callable[[], Any], int]] = {
    **{f"skills on a {space.kind}": (partial(DrawnSkills, space), TICKS) for space in (BOX, ONEHOT, SPHERE)},
    "replay": (Remembered, TICKS),
    **{f"agent cic {name}": (partial(Learned, "cic", name), 6) for name in learners_for(())},
}


@pytest.mark.parametrize("name", PARTS)
@settings(steady, max_examples=6)
@given(data=st.data())
def test_asking_changes_nothing_and_from_the_answer_it_continues_as_before(name: str, data: st.DataObject) -> None:
    make, ticks = PARTS[name]
    moments = st.integers(0, ticks - 1)
    asked, cut = data.draw(st.sets(moments, min_size=1)), data.draw(moments)
    undisturbed, disturbed = make(), make()
    for t in range(ticks):
        if t in asked:
            disturbed.state()
        if t == cut:
            state = copy.deepcopy(disturbed.state())
            disturbed = make()
            disturbed.restore(state)
        assert disturbed.tick(t) == undisturbed.tick(t)


@pytest.mark.parametrize("objective", sorted(name for name, _ in objectives() if name not in ("cic", "ddpg")))
def test_what_an_objective_keeps_is_in_the_agents_state(objective: str) -> None:
    undisturbed, disturbed = Learned(objective, "ddpg"), Learned(objective, "ddpg")
    for t in range(5):
        if t == 3:
            state = copy.deepcopy(disturbed.state())
            disturbed = Learned(objective, "ddpg")
            disturbed.restore(state)
        assert disturbed.tick(t) == undisturbed.tick(t)


# ---- whole runs ------------------------------------------------------------------------------------------------


def asked_at(moments: set[int]) -> type[Loop[Any]]:
    """A loop that also writes a checkpoint after these steps of its environments."""

    class Asked(Loop[Any]):
        def _tick(self, segment: Segment) -> None:
            super()._tick(segment)
            if self.step // self.config.num_envs in moments:
                self.checkpoint()

    return Asked


def outcome(path: Path) -> dict[str, Any]:
    """What must be the same: every line, the results, and all that the last checkpoint holds but the clock's length."""
    files = [path / name for name in ("metrics.jsonl", "result.json", "trials.json") if (path / name).exists()]
    files += (path / "library").glob("*.safetensors")
    last = sorted((path / "checkpoints").iterdir())[-1]
    found: dict[str, Any] = {str(file.relative_to(path)): file.read_bytes() for file in files}
    found |= {file.name: file.read_bytes() for file in last.glob("*.safetensors")}
    state = json.loads((last / "state.json").read_text())
    return found | {"state": {name: value for name, value in state.items() if name != "timing_bytes"}}


def assert_same(got: dict[str, Any], expected: dict[str, Any]) -> None:
    assert got.keys() == expected.keys()
    assert [name for name in expected if got[name] != expected[name]] == []


class Killed(BaseException):
    """The process ends without saving."""


def kill() -> None:
    raise Killed


def lived(path: Path, setting: Setting, ends: dict[int, Callable[[], None]], asked: set[int]) -> dict[str, Any]:
    """A run that is stopped or killed at some ticks, writes checkpoints at others, and is always resumed."""
    for tick, end in [*sorted(ends.items()), (None, None)]:
        env, agent, inherited = setting.parts()
        made = (setting.kind, setting.config, WatchedEnv(env), agent, setting.script, inherited)
        loop = make_loop(path, *made, asked_at(asked))
        if tick is None or end is None:
            loop.train()
            continue
        saved = loop.run.checkpoints()
        done = int(saved[-1].name) // setting.config.num_envs if saved else 0
        loop.env.events[max(tick - done, 0)] = end  # type: ignore[attr-defined]
        with pytest.raises((Interrupted, Killed)):
            loop.train()
    return outcome(path)


def fake_setting(name: str, num_envs: int) -> Setting:
    """A script with fakes all around it; the environments' episodes end at different times."""
    shared: dict[str, Any] = {"num_envs": num_envs, "steps": 150 * num_envs, "warmup": 50 * num_envs, "log_every": 22}
    shared |= {"update_every": 3 * num_envs, "replay": 120 * num_envs, "checkpoint_every": 10**6}
    lengths = [17 + 5 * i for i in range(num_envs)]
    if name in searches():
        own = {"search": name, "eval_every": 40 * num_envs, "trial_steps": 5 * num_envs}
        config: Any = finetune_config(**own, **shared)
        return Setting("finetune", config, lambda: (FakeEnv(lengths), FakeAgent(), None))
    shared |= {"library": 2 * num_envs, "library_starts": 2, "library_steps": 15} if name == "collection" else {}
    config = pretrain_config(**shared)
    script = plain_script if name == "plain" else None
    return Setting("pretrain", config, lambda: (FakeEnv(lengths), FakeAgent(), None), script)


def real_setting(kind: str, num_envs: int) -> Setting:
    """An episode of point_mass and a little more, with a dozen updates."""
    shared: dict[str, Any] = {"num_envs": num_envs, "steps": 1_050 * num_envs, "warmup": 200 * num_envs, "hidden": 8}
    shared |= {"update_every": 60 * num_envs, "log_every": 150 * num_envs, "replay": 800 * num_envs}
    shared |= {"checkpoint_every": 10**6}  # except at the end: the undisturbed run writes no other checkpoint
    own = {"search": "cem", "trial_steps": 10 * num_envs, "eval_every": 10**6, "eval_episodes": 1}
    if kind == "pretrain":
        config: Any = pretrain_config("point_mass", skill_every=30, milestones=(), **shared)
    else:
        config = finetune_config("point_mass-reach_top_left", **own, **shared)

    def parts() -> tuple[Any, Any, Any]:
        env = envs.make(config.environment, num_envs=num_envs, seed=config.seed)
        return env, api.make_agent(config), None

    return Setting(kind, config, parts)


def adapting_setting(num_envs: int) -> Setting:
    """From a pre-training with a library: search, comparison and relabelled replay have a state."""
    shared: dict[str, Any] = {"num_envs": num_envs, "steps": 150 * num_envs, "warmup": 30 * num_envs, "log_every": 22}
    shared |= {"update_every": 9 * num_envs, "replay": 1_000 * num_envs, "checkpoint_every": 10**6}
    own = {"search": "library", "search_steps": 60 * num_envs, "trial_steps": 6 * num_envs, "eval_every": 10**6}
    config = finetune_config(**shared, **own, check_steps=40 * num_envs, eval_episodes=1, prior_data=0.5)
    source, rng = api.make_agent(config), np.random.default_rng(0)
    library = Library(rng.random((9, 4), np.float32), rng.random((9, 6, 2), np.float32))
    steps = {"obs": rng.random((50, 2), np.float32), "action": rng.random((50, source.spaces.action), np.float32)}
    steps |= {"terminated": np.zeros(50, np.bool_), "episode_end": np.arange(50) % 10 == 9}
    inherited = Inheritance(source.state_dict(), library.arrays(), steps)

    def parts() -> tuple[Any, Any, Any]:
        env = envs.make(config.task, num_envs=num_envs, seed=config.seed)
        return env, api.make_agent(config), inherited

    return Setting("finetune", config, parts)


SETTINGS = {
    **{f"{name} among fakes": partial(fake_setting, name) for name in SCRIPTS},
    "a finetuning from skills": adapting_setting,
    **{f"a real {kind}": partial(real_setting, kind) for kind in ("pretrain", "finetune")},
}


@pytest.mark.parametrize(
    "copies", [pytest.param(copies, marks=[pytest.mark.slow] * (copies != 3)) for copies in COPIES]
)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_that_was_stopped_or_killed_ends_with_the_same_bytes(
    name: str, copies: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    setting = SETTINGS[name](copies)
    last = setting.config.steps // copies - 2
    moments, examples = st.integers(1, last), 1 if name.startswith("a real") else 3
    undisturbed = lived(tmp_path_factory.mktemp("undisturbed") / "run", setting, {}, set())

    @settings(steady, max_examples=examples)
    @given(
        ends=st.dictionaries(moments, st.sampled_from([stop(), kill]), min_size=1, max_size=2),
        asked=st.sets(moments, max_size=3),
    )
    @example(ends={}, asked={last // 3})
    @example(ends={last // 2: kill}, asked={last // 3})
    def disturb(ends: dict[int, Callable[[], None]], asked: set[int]) -> None:
        disturbed = lived(tmp_path_factory.mktemp("disturbed") / "run", setting, ends, asked)
        assert_same(disturbed, undisturbed)

    disturb()


@pytest.mark.slow
def test_stopped_at_step_1237_and_resumed_by_the_command_it_ends_as_the_run_that_was_not(tmp_path: Path) -> None:
    """Once a checkpoint in the middle of an episode made it endless."""
    shared = {"scale": "smoke", "steps": 3_000, "update_every": 50, "quiet": True}
    api.pretrain("point_mass", out=tmp_path / "whole", **shared)  # type: ignore[arg-type]
    config = override(pretrain_defaults("point_mass", "cic", "smoke"), {"steps": 3_000, "update_every": 50})
    env = WatchedEnv(envs.make("point_mass"), events={1_236: stop()})
    with pytest.raises(Interrupted, match="saved at step 1237"):
        make_loop(tmp_path / "stopped", "pretrain", config, env).train()
    assert cli.main(["pretrain", "--resume", str(tmp_path / "stopped"), "--quiet"]) == 0
    assert_same(outcome(tmp_path / "stopped"), outcome(tmp_path / "whole"))
    lines = [json.loads(line) for line in (tmp_path / "stopped" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "zero_shot/easy" in line] == [1_000, 2_000, 3_000], "episodes end"
