"""The only training loop. It executes the instructions of a script: act, update, step, store, log, checkpoint.

Updates that are due run before the current step is stored: they could not sample that step anyway, because its n-step
return is not complete. There is exactly one update per `update_every` steps after the warm-up. Updates that become due
while nothing is trained are made when training starts.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from cic.core.command_text import command_text
from cic.core.errors import Interrupted, UserError
from cic.core.imports import import_names
from cic.core.types import Array, Batch, Bools, Metrics, Needs
from cic.envs.base import VectorEnv
from cic.learning import compilation
from cic.learning.agent import Agent
from cic.learning.replay import Replay
from cic.runs.folder import Inheritance, Run
from cic.runs.storage import load_weights
from cic.runs.untrusted import Arrays, Tensors
from cic.training import checkpoint_checks
from cic.training.evaluation import CoverageTracker
from cic.training.logs import LOGS, Logs
from cic.training.progress import Reporter
from cic.training.script import Call, Cursor, Script, Segment, Stage
from cic.training.settings import LoopConfig
from cic.training.signals import StopRequest
from cic.training.skill_schedule import SkillSchedule
from cic.training.validity import Problems, exempt_checks

HEARTBEAT = 30.0  # seconds between two updates of status.json
TRAIN_METRICS_SHOWN = {"reward/intrinsic": "intrinsic", "train/return": "return", "coverage/fraction": "coverage"}


C = TypeVar("C", bound=LoopConfig[Any])


class Diverged(UserError):
    """A value became NaN or infinite."""


class Stopped(Exception):
    """A signal asked to save and stop."""


class BatchSource(Protocol):
    """Where the batches of the updates come from."""

    def sample(self, size: int) -> Batch: ...
    def state(self) -> Arrays: ...
    def restore(self, state: Arrays) -> None: ...


class ReplayBatches:
    """Batches from the run's own replay."""

    def __init__(self, replay: Replay, rng: np.random.Generator, needs: Needs) -> None:
        self.replay, self.rng, self.needs = replay, rng, needs

    def sample(self, size: int) -> Batch:
        return self.replay.sample(size, self.rng, self.needs)

    def state(self) -> Arrays:
        return {}

    def restore(self, state: Arrays) -> None:
        checkpoint_checks.require_like(state, {})


class Loop(Generic[C]):
    """One run. `config` states how long, `agent` learns, `script` states what happens in which order."""

    _COUNTERS = ("step", "updates", "next_log")
    _ARRAYS = ("obs", "running_return", "finished_return", "finished_count")

    def __init__(
        self,
        run: Run,
        config: C,
        env: VectorEnv,
        agent: Agent,
        script: Callable[[Loop[C]], Script],
        *,
        inherited: Inheritance | None = None,
        stored: Replay | None = None,
        quiet: bool = False,
    ) -> None:
        torch.set_num_threads(config.threads)
        self.run, self.config, self.env, self.agent, self.quiet = run, config, env, agent, quiet
        self.inherited = inherited
        """The pre-trained weights and data of a finetuning."""
        self.stored = stored
        """The data of an offline run. They are not part of its checkpoints."""
        self.rng = np.random.default_rng(config.seed)
        self.needs = agent.objective.needs if config.intrinsic else Needs()
        num_envs = config.num_envs
        self.replay = stored or Replay(
            agent.spaces,
            agent.objective.skills.dim,
            config.replay,
            num_envs,
            self.needs.nstep or config.learning.nstep,
            config.learning.gamma,
            len(env.tasks),
            self._physics_width(),
        )
        self.batches: BatchSource = ReplayBatches(self.replay, self.rng, self.needs)
        self.skills = SkillSchedule(num_envs, agent.objective.skills.dim, self.rng)
        self.coverage: CoverageTracker | None = None
        self.step = self.updates = self.next_log = 0
        self.obs: Array = np.zeros((num_envs, agent.spaces.obs), np.float32)
        self._returns = {f"zero_shot/{task}": task for task in env.tasks or ("reward",)}
        if not config.intrinsic:
            self._returns = {"train/return": env.task or "reward"}
        self.running_return = np.zeros((len(self._returns), num_envs))
        self.finished_return = np.zeros(len(self._returns))
        self.finished_count = np.zeros(1, np.int64)
        self.problems = Problems(self.replay.gamma**self.replay.nstep, exempt_checks(agent))
        """Problems that the metrics show, such as a collapsed representation."""
        self._outcome: dict[str, Any] | None = None  # of the segment that is being executed
        self._result: dict[str, Any] | None = None
        self._saved_at = -1
        self._heartbeat = 0.0
        self._metrics: Metrics = {}  # of the latest update, its batch and the step at which it was made
        self._batch: Batch | None = None
        self._updated_at = -1
        self.cursor = Cursor(script(self))

    @property
    def total_steps(self) -> int:
        """The step at which the run ends: the environments step together."""
        return -(-self.config.steps // self.config.num_envs) * self.config.num_envs

    def _physics_width(self) -> int:
        """Numbers of the simulator's state that the replay stores per step."""
        if not self.config.keep_physics:
            return 0
        if not (width := self.env.physics().shape[1]):
            raise UserError(f"{self.env.name} has no simulator state that could be stored: omit `keep_physics`")
        return int(width)

    def _physics(self) -> npt.NDArray[np.float64] | None:
        return self.env.physics() if self.config.keep_physics else None

    # ---- the script --------------------------------------------------------------------------------------------

    def train(self) -> dict[str, Any]:
        """Run to the end, or until a signal asks to save and stop."""
        self.run.lock()
        try:
            with StopRequest() as self.stop:
                return self._train()
        except BaseException as error:
            if not isinstance(error, Interrupted):
                self._try_status("failed", str(error) or type(error).__name__)
            raise
        finally:
            self.env.close()
            self.run.unlock()

    def _train(self) -> dict[str, Any]:
        resumed = self._resume()
        self.run.apply_extension()
        self.logs = Logs(self.run.path, resumed, self.step, self.config, self.run.config)
        self._write_heartbeat()
        with self.logs, Reporter(self.config.title, self.total_steps, self.step, self.quiet) as self.reporter:
            if not resumed:
                self.obs, _ = self.env.reset(seed=self.config.seed)
            if compilation.wanted(self.config.compile, self.updates_due(self.config.steps)):
                self.reporter.say("the first update takes a while: it is compiled (up to half a minute)")
                self.agent.compile_losses()
            try:
                self._execute_script()
            except Stopped:
                self.checkpoint()
                self.run.write_status("interrupted", self.step, f"stopped by {self.stop.by}")
                imports = import_names(self.run.about.get("imports"))
                raise Interrupted(
                    f"{self.stop.by}: saved at step {self.step}; "
                    f"continue with `{command_text(self.run.kind, resume=self.run.path, imports=imports)}`"
                ) from None
            return self._finish()

    def _execute_script(self) -> None:
        if self._result is not None:  # the run was killed after its last checkpoint
            return
        while (instruction := self.cursor.current) is not None:
            if isinstance(instruction, Stage):
                self.cursor.enter()
            elif isinstance(instruction, Call):
                self.cursor.finish(instruction.function())
            else:
                self._execute(instruction)
                self.cursor.finish(self._outcome)
                self._outcome = None

    def _execute(self, segment: Segment) -> None:
        """One segment, from its start or from where a checkpoint was written."""
        if self._outcome is None:
            self._start(segment)
        if segment.until_update is not None:
            while self.updates < segment.until_update and self.replay.ready():
                self._update(segment)
                if self.config.offline:
                    self._count_update()
                self._stop_if_asked()
            return
        assert segment.until is not None
        while self.step < min(segment.until, self.config.steps):
            self._tick(segment)
            self._stop_if_asked()

    def _start(self, segment: Segment) -> None:
        self._outcome = {"steps": 0, "reward": 0.0}
        if segment.reset:
            self.restart_episodes(segment.reset_seed)
        if segment.skill is not None:
            self.skills.hold(segment.skill)
        elif segment.until is not None:
            self.skills.start_random(self.agent.objective.skills)

    def _stop_if_asked(self) -> None:
        if self.stop.by:
            raise Stopped

    def _finish(self) -> dict[str, Any]:
        if self._result is None:
            self._result = self.cursor.result | {"step": self.step, "problems": self.problems.found}
            self.checkpoint()
        self.run.write_result(self._result)
        self.run.write_status("finished", self.step)
        return self._result

    # ---- one step of every environment -------------------------------------------------------------------------

    def _tick(self, segment: Segment) -> None:
        action = self._action(segment)
        if segment.train != "none":
            for _ in range(self.updates_due(self.step) - self.updates if self.replay.ready() else 0):
                self._update(segment)
        if self.step >= self.next_log and (self._updated_at == self.step or not self.updates):
            self.log()
        self._store(segment, action)
        self._finish_step(segment.ending)

    def _count_update(self) -> None:
        """Without an environment, each update is a step of the run."""
        self.step = self._updated_at = self.updates
        if self.step >= self.next_log:
            self.log()
        self._finish_step()

    def _finish_step(self, ending: bool = False) -> None:
        if self._checkpoint_is_due() and not ending:
            self.checkpoint()
        self.reporter.advance(self.step)
        if time.monotonic() - self._heartbeat > HEARTBEAT:
            self._write_heartbeat()

    def _action(self, segment: Segment) -> Array:
        if segment.act == "uniform":
            return self.agent.spaces.random_actions(self.config.num_envs, self.rng)
        explore = segment.act == "explore"
        action = self.agent.act(self.obs, self.skills.current, explore=explore, actor=segment.actor)
        if not np.isfinite(action).all():
            self.require_finite_update()
            raise Diverged(f"the policy's actions are not finite at step {self.step}: {self._last_good()}")
        return action

    def updates_due(self, step: int) -> int:
        """How many updates a run makes until this step."""
        return max((step - self.config.warmup) // self.config.update_every, 0)

    def _update(self, segment: Segment) -> None:
        if self.config.intrinsic:
            self.agent.objective.progress = self.step / self.config.steps
        size = self.config.learning.batch
        batches = [self.batches.sample(size).to(self.agent.device) for _ in range(self.needs.batches)]
        trains_actor = segment.train == "all"
        self._metrics = self.agent.update(*batches, intrinsic=self.config.intrinsic, actor=trains_actor)
        if self._batch is None:
            self.reporter.restart_clock()  # the first update of a process may include the compilation
        self._batch, self._updated_at = batches[-1], self.step
        self.updates += 1

    def _store(self, segment: Segment, action: Array) -> None:
        inherits = self.inherited is not None and not self.config.intrinsic
        if self.config.normalise_obs and not inherits and not segment.ending:
            self.agent.observe(self.obs)
        physics, skill, started = self._physics(), self.skills.current, self.skills.started
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self.coverage is not None and self.coverage.from_states:
            self.coverage.add(self.env.states())  # type: ignore[arg-type]
        done = terminated | truncated
        rewards = info.get("rewards", {})
        by_task = np.stack([rewards[task] for task in self.env.tasks], axis=1) if rewards else None
        self.replay.add(
            self.obs, skill, action, reward, terminated, skill_started=started, task_rewards=by_task, physics=physics
        )
        self.running_return += [rewards.get(task, reward) for task in self._returns.values()]
        self.obs = obs
        self.finished_return += self.running_return[:, done].sum(axis=1)
        self.finished_count += int(done.sum())
        assert self._outcome is not None
        self._outcome["steps"] += len(reward)
        if self._outcome["steps"] > segment.skip:
            self._outcome["reward"] += float(reward.sum(dtype=np.float64))
        self.skills.advance(done, self.agent.objective.skills)
        if done.any():
            self._reset(done)
        self.step += self.config.num_envs

    def restart_episodes(self, seed: int | None = None) -> None:
        """End the episodes of all environments and start new ones."""
        self._reset(np.ones(self.config.num_envs, np.bool_), seed)

    def _reset(self, done: Bools, seed: int | None = None) -> None:
        self.replay.finish(self.obs, done, self._physics())
        self.running_return[:, done] = 0
        self.obs, _ = self.env.reset(seed=seed, options={"reset_mask": done})

    def _checkpoint_is_due(self) -> bool:
        every, before = self.config.checkpoint_every, self.step - self.config.num_envs
        return before // every < self.step // every and self.step < self.config.steps  # the end has its own

    # ---- logging -----------------------------------------------------------------------------------------------

    def log(self) -> None:
        """Log one line of metrics: of an update at this step, of finished episodes and of the coverage."""
        updated = self._updated_at == self.step
        numbers = {name: float(value) for name, value in self._metrics.items()} if updated else {}
        self.require_finite(numbers)  # before the diagnosis, whose eigenvalues exist only for finite values
        if updated:
            assert self._batch is not None
            found = self.agent.diagnose(self._batch, intrinsic=self.config.intrinsic)
            numbers |= {name: float(value) for name, value in found.items()}
            self._report_problems(numbers)
        if self.coverage is not None:
            numbers |= self.coverage.update(self.replay, self.step)
        if self.finished_count[0]:
            means = self.finished_return / self.finished_count[0]
            numbers |= {key: float(mean) for key, mean in zip(self._returns, means, strict=True)}
            self.finished_return[:], self.finished_count[:] = 0, 0
        self.require_finite(numbers)
        self.write_metrics(numbers)
        self.logs.write_timing(
            {"step": self.step, "time/steps_per_second": self.reporter.rate, "time/unix": time.time()}
        )
        self.next_log = (self.step // self.config.log_every + 1) * self.config.log_every
        shown = {label: numbers[key] for key, label in TRAIN_METRICS_SHOWN.items() if key in numbers}
        self.reporter.note(self.step, **shown)
        self._write_heartbeat()

    def _report_problems(self, numbers: dict[str, float]) -> None:
        """Warn of each problem once; those that last are part of the result."""
        own = self.agent.objective.problems(numbers) if self.config.intrinsic else {}
        for message in self.problems.update(numbers, own, self.step, self.step / self.config.steps):
            warnings.warn(message, stacklevel=2)

    def write_metrics(self, numbers: dict[str, float]) -> None:
        self.logs.write({"step": self.step, "update": self.updates} | numbers)

    def _write_heartbeat(self) -> None:
        self.run.write_status("running", self.step)
        self._heartbeat = time.monotonic()

    def require_finite(self, numbers: dict[str, float]) -> None:
        reward = numbers.get("reward/intrinsic", 0.0)
        if not math.isfinite(reward) and self._has_sound_objective():
            where = f"{type(self.agent.objective).__name__}.reward(batch)"
            raise Diverged(f"the reward is {reward} by step {self.step}: check {where}, its weights are finite")
        for name, value in numbers.items():
            if not math.isfinite(value):
                raise Diverged(f"{name} became {value} by step {self.step}: {self._last_good()}")

    def _has_sound_objective(self) -> bool:
        """Whether the objective's weights are of ordinary size, so that a bad reward is not caused by them."""
        return all(bool((value.abs() < 1e6).all()) for value in self.agent.objective.parameters())

    def require_finite_update(self) -> None:
        """Check the latest update's metrics before its weights are used for something costly."""
        self.require_finite({name: float(value) for name, value in self._metrics.items()})

    def _last_good(self) -> str:
        kept = self.run.checkpoints()
        where = (
            f"the last good checkpoint is that of step {int(kept[-1].name)}" if kept else "there is no checkpoint yet"
        )
        return f"{where}; a smaller `lr` usually helps"

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write everything that influences the future to one folder."""
        if self._saved_at == self.step and self._result is None:
            return
        self.require_finite_update()
        tensors = {"agent": self.agent.state_dict(), "optimisers": self.agent.optimiser_state()}
        for part, values in tensors.items():
            for name, value in values.items():
                if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                    what = "weights" if part == "agent" else "optimiser's"
                    raise Diverged(f"the {what} {name} are not finite at step {self.step}: {self._last_good()}")
        state = {name: getattr(self, name) for name in self._COUNTERS} | {
            "rng": self.rng.bit_generator.state,
            "script": self.cursor.state(),
            "outcome": self._outcome,
            "problems": self.problems.state(),
            "result": self._result,
        }
        self.run.save_checkpoint(self.step, tensors, self._arrays(), state, (self.logs.metrics, self.logs.timing))
        self._saved_at = self.step

    def _arrays(self) -> dict[str, Arrays]:
        return {
            "replay": {} if self.stored else self.replay.state(),
            "env": self.env.state(),
            "loop": self._own_arrays(),
            "batches": self.batches.state(),
            "coverage": self.coverage.state() if self.coverage else {},
        }

    def _own_arrays(self) -> Arrays:
        return {name: getattr(self, name) for name in self._ARRAYS} | self.skills.state()

    def _resume(self) -> Path | None:
        """Continue from the newest good checkpoint and return its folder; None if there is none yet."""
        found = self.run.load_checkpoint(checkpoint_checks.size_limits(self.agent, self.replay, self._own_arrays()))
        if found is None:
            return None
        folder = found.folder
        with checkpoint_checks.fitting(folder):
            missing = [name for name in LOGS if not (folder / name).is_file()]
            checkpoint_checks.need(not missing, f"it lacks {' and '.join(missing)}")
            self._restore(found.tensors, found.arrays, found.state)
        return folder

    def _restore(self, tensors: dict[str, Tensors], arrays: dict[str, Arrays], state: dict[str, Any]) -> None:
        load_weights(self.agent, tensors["agent"], self.run.path)
        self.agent.restore_optimisers(tensors["optimisers"] | self._fresh_generator())
        if not self.stored:
            checkpoint_checks.require_own_replay(arrays["replay"], self.replay)
            self.replay.restore(arrays["replay"])
        checkpoint_checks.require_like(arrays["loop"], self._own_arrays())
        for name in self._ARRAYS:
            setattr(self, name, np.array(arrays["loop"][name]))
        self.skills.restore(arrays["loop"])
        self.batches.restore(arrays.get("batches", {}))
        if self.coverage is not None:
            self.coverage.restore(arrays.get("coverage", {}))
        self.step = checkpoint_checks.whole(state, "step", 0, self.config.steps + self.config.num_envs)
        self.updates = checkpoint_checks.whole(state, "updates", 0, 10**12)
        self.next_log = checkpoint_checks.whole(state, "next_log", 0, self.step + self.config.log_every)
        self.rng.bit_generator.state = state["rng"]
        checkpoint_checks.need(isinstance(state["result"], dict | None), "result must be an object")
        self._result, self._saved_at = state["result"], self.step
        self.problems.restore(state["problems"])
        if self._result is None:
            self.cursor.restore(state["script"])
            self._outcome = checkpoint_checks.segment_outcome(state["outcome"])
        self.env.restore(arrays["env"])
        if not self.env.exact_state:  # restored environments start new episodes
            self.skills.redraw(self.agent.objective.skills)
            self.restart_episodes()

    def _fresh_generator(self) -> Tensors:
        """The agent's own generator, if the run continues on another device, where a generator has another state."""
        if self.config.device == self.run.config.get("device", self.config.device):
            return {}
        warnings.warn(
            "the run continues on another device: its random numbers restart, so it is not bit-exact", stacklevel=2
        )
        return {"generator": self.agent.optimiser_state()["generator"]}

    def _try_status(self, state: str, message: str) -> None:
        with contextlib.suppress(OSError):  # if the disk is full, the original error must reach the user
            self.run.write_status(state, self.step, message)
