"""Parts of a loop that are not real: their numbers are known, and they keep what passed between them and the loop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cic import api, envs
from cic.core.config import to_dict
from cic.core.types import Batch, Metrics, Spaces
from cic.envs.catalogue import Quantity
from cic.learning.objectives import Objective, SkillSpace, get_objective
from cic.runs.folder import Inheritance, Run
from cic.training.loop import Loop
from cic.training.script import Call, Script, Segment
from cic.training.settings import FinetuneConfig, finetune_defaults, override, pretrain_defaults

SMALL: dict[str, Any] = {"hidden": 16, "batch": 16, "warmup": 40, "log_every": 20}
TASK = "gridworld-reach_top_left"


# ---- environments ----------------------------------------------------------------------------------------------


class FakeEnv:
    """Copy i says who it is, which episode it is in and where in it; it ends after `lengths[i]` steps.

    Even copies end by termination, odd ones by their time limit. Each moment pays something else.
    """

    task, tasks, exact_state = None, ("left", "right"), True
    coverage = (Quantity("who", "", (0,), 0.0, 20.0), Quantity("when", "", (1,), 0.0, 20.0))

    def __init__(self, lengths: list[int]) -> None:
        self.lengths, self.num_envs = np.array(lengths), len(lengths)
        self.episode, self.count = np.zeros((2, self.num_envs), np.int64)
        self.closed = False

    def states(self) -> None:
        return None

    def _observe(self) -> np.ndarray:
        return np.stack([100 * np.arange(self.num_envs) + self.episode, self.count], axis=1).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        mask = np.ones(self.num_envs, np.bool_) if options is None else options["reset_mask"]
        self.episode[mask] += 1
        self.count[mask] = 0
        return self._observe(), {}

    def paid(self, actions: np.ndarray) -> np.ndarray:
        """(3, N): by itself, and for the two tasks."""
        result: np.ndarray = np.sin(np.outer([1.0, 2.0, 3.0], self._observe() @ [0.7, 1.3])).astype(np.float32)
        return result

    def step(self, actions: np.ndarray) -> Any:
        assert (self.count < self.lengths).all(), "a copy that ended must be reset before it steps again"
        self.count += 1
        paid = self.paid(actions)
        done, even = self.count >= self.lengths, np.arange(self.num_envs) % 2 == 0
        rewards = {"left": paid[1], "right": paid[2]}
        return self._observe(), paid[0], done & even, done & ~even, {"rewards": rewards}

    def state(self) -> dict[str, np.ndarray]:
        return {"episode": self.episode.copy(), "count": self.count.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.episode[:], self.count[:] = state["episode"], state["count"]

    def close(self) -> None:
        self.closed = True


@dataclass
class Tape:
    """What a loop asked of its environment and its agent, and what they said."""

    obs: list[np.ndarray] = field(default_factory=list)
    action: list[np.ndarray] = field(default_factory=list)
    after: list[np.ndarray] = field(default_factory=list)
    reward: list[np.ndarray] = field(default_factory=list)
    rewards: list[dict[str, np.ndarray]] = field(default_factory=list)
    done: list[np.ndarray] = field(default_factory=list)
    reset: list[np.ndarray] = field(default_factory=list)
    """Which copies began a new episode after the step."""
    seeds: list[int] = field(default_factory=list)
    """Of the new episodes that were given one."""
    skill: list[np.ndarray] = field(default_factory=list)
    """Of each step at which the policy was asked."""
    acted: list[int] = field(default_factory=list)
    """The ticks of those steps."""
    updates: list[tuple[int, bool]] = field(default_factory=list)
    """The tick of each update, and whether the actor was to learn."""
    batches: list[Batch] = field(default_factory=list)


class Part:
    """Stands in front of a real or a fake part: what it does not do itself, that one does."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


class WatchedEnv(Part):
    """Keeps a tape; `events` are called before a tick's step."""

    def __init__(self, env: Any, tape: Tape | None = None, events: dict[int, Callable[[], Any]] | None = None) -> None:
        super().__init__(env)
        self.tape, self.events, self._obs = tape or Tape(), events or {}, None

    def step(self, action: np.ndarray) -> Any:
        self.events.get(len(self.tape.done), lambda: None)()
        outcome = self._part.step(action)
        self.tape.obs.append(self._obs)
        self.tape.action.append(action.copy())
        self._obs = outcome[0].copy()
        self.tape.after.append(self._obs)
        self.tape.reward.append(outcome[1].copy())
        self.tape.rewards.append({task: paid.copy() for task, paid in outcome[4]["rewards"].items()})
        self.tape.done.append(outcome[2] | outcome[3])
        self.tape.reset.append(np.zeros(self.num_envs, np.bool_))
        return outcome

    def reset(self, **arguments: Any) -> Any:
        if arguments.get("options") and self.tape.reset:
            self.tape.reset[-1] |= arguments["options"]["reset_mask"]
            self.tape.seeds += [arguments["seed"]] if arguments.get("seed") is not None else []
        outcome = self._part.reset(**arguments)
        self._obs = outcome[0].copy()
        return outcome


def stop(number: int = signal.SIGINT) -> Callable[[], None]:
    """An event: the user stops the run."""
    return lambda: os.kill(os.getpid(), number)


# ---- agents ----------------------------------------------------------------------------------------------------


class FakeObjective(Objective):
    """Skills and nothing to learn."""

    skills = SkillSpace("box", 4, every=7)


class FakeAgent:
    """Acts by what it sees, its skill and how much it learned; learning is adding up."""

    spaces, device = Spaces(2, 2), torch.device("cpu")

    def __init__(self, poisoned_at: int | None = None) -> None:
        self.objective = FakeObjective(self.spaces, 1, None)
        self.weight = torch.zeros(2)
        self.updates, self.poisoned_at = 0, poisoned_at

    def act(self, obs: np.ndarray, skill: np.ndarray, *, explore: bool = False, actor: Any = None) -> np.ndarray:
        action: np.ndarray = np.sin(obs + np.broadcast_to(skill, (len(obs), 4))[:, :2] + self.weight.numpy())
        return action.astype(np.float32)

    def update(self, *batches: Batch, intrinsic: bool, actor: bool = True) -> Metrics:
        self.updates += 1
        self.weight += batches[-1].action.mean(dim=0)
        poisoned = self.poisoned_at is not None and self.updates >= self.poisoned_at
        loss = self.weight.sum() * (torch.nan if poisoned else 1)
        return {"critic/loss": loss, "reward/intrinsic" if intrinsic else "reward/task": batches[-1].reward.mean()}

    def diagnose(self, batch: Batch, *, intrinsic: bool) -> Metrics:
        return self.objective.diagnose(batch) if intrinsic else {}

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"weight": self.weight}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.weight = state["weight"].clone()

    def optimiser_state(self) -> dict[str, torch.Tensor]:
        return {"updates": torch.tensor(self.updates)}

    def restore_optimisers(self, state: dict[str, torch.Tensor]) -> None:
        self.updates = int(state["updates"])


class WatchedAgent(Part):
    """Keeps a tape of what the loop asked, which is not what evaluations ask."""

    def __init__(self, agent: Any, tape: Tape) -> None:
        super().__init__(agent)
        self.tape = tape

    def act(self, obs: np.ndarray, skill: np.ndarray, *, explore: bool = False, **options: Any) -> np.ndarray:
        if explore:
            self.tape.acted.append(len(self.tape.done))
            self.tape.skill.append(np.array(skill))
        result: np.ndarray = self._part.act(obs, skill, explore=explore, **options)
        return result

    def update(self, *batches: Batch, actor: bool = True, **options: Any) -> Metrics:
        self.tape.updates.append((len(self.tape.done), actor))
        self.tape.batches.extend(batches)
        metrics: Metrics = self._part.update(*batches, actor=actor, **options)
        return metrics


class PoisonedAgent(Part):
    """A real agent, but one field of a batch is not a number in its `after`-th update."""

    def __init__(self, agent: Any, name: str, after: int) -> None:
        super().__init__(agent)
        self._name, self._left = name, after

    def update(self, batch: Batch, **options: Any) -> Metrics:
        self._left -= 1
        if self._left == 0:
            batch = batch._replace(**{self._name: torch.full_like(getattr(batch, self._name), torch.nan)})
        metrics: Metrics = self._part.update(batch, **options)
        return metrics


# ---- scripts and loops -----------------------------------------------------------------------------------------


def plain_script(loop: Loop[Any]) -> Script:
    """A constant skill, and the policy's actions from the first step."""
    yield Segment("train", until=loop.config.steps, skill=np.full(4, 0.5, np.float32))
    yield Segment("last updates", until_update=loop.updates_due(loop.total_steps))
    yield Call("log", loop.log)
    return {"script": "plain"}


def pretrain_config(domain: str = "gridworld", objective: str = "cic", **settings: Any) -> Any:
    own = {"skill_dim": 4} if objective == "cic" else {}
    return override(pretrain_defaults(domain, objective, "smoke"), own | SMALL | settings)


def finetune_config(task: str = TASK, objective: str = "cic", **settings: Any) -> FinetuneConfig[Any, Any]:
    own: dict[str, Any] = {"eval_every": 1000, "eval_episodes": 2, "trial_steps": 5}
    given = override(finetune_defaults(task, "smoke"), own | SMALL | settings)
    options = get_objective(objective).Options(**({"skill_dim": 4} if objective == "cic" else {}))
    origin = {"objective": objective, "pretrained": None, "pretrain_steps": 0, "pretrain_seed": None}
    return FinetuneConfig(**vars(given), **origin, options=options)


def make_loop(
    path: Path,
    kind: str,
    config: Any,
    env: Any = None,
    agent: Any = None,
    script: Any = None,
    inherited: Inheritance | None = None,
    loop_class: type[Loop[Any]] = Loop,
) -> Loop[Any]:
    """A loop in a new folder or in the one that is there; the parts that are not given are real."""
    run = (
        Run(path) if (path / "config.json").exists() else Run.plan(path, kind, to_dict(config)).create({"version": "1"})
    )
    env = env or envs.make(config.environment, num_envs=config.num_envs, seed=config.seed)
    agent, script = agent or api.make_agent(config), script or api.SCRIPTS[kind]
    return loop_class(run, config, env, agent, script, inherited=inherited, quiet=True)


def stopping_at(step: int) -> type[Loop[Any]]:
    """A loop that is asked to stop once it has reached this step."""

    class Stopping(Loop[Any]):
        def _tick(self, segment: Segment) -> None:
            super()._tick(segment)
            if self.step >= step:
                self.stop.by = "SIGINT"

    return Stopping
