"""The only loop: act, step, store, update, log, checkpoint. Pre-training and finetuning differ in data, not in code.

An environment step runs while the update that is due runs beside it, so an update never sees the step in flight; it
could not have sampled it anyway (its n-step return is not complete). There is exactly one update per `update_every`
steps after the warm-up; those that come due before `start` are made up there, and leave the actor alone.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cic.core.errors import UserError
from cic.core.types import Array, Batch, Metrics
from cic.envs import make
from cic.learning import compilation
from cic.learning.agent import Agent
from cic.learning.replay import Replay
from cic.runs.folder import Run
from cic.training.logs import Logs
from cic.training.progress import Reporter
from cic.training.settings import LoopConfig

Outcome = tuple[Array, Array, npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]


class Diverged(UserError):
    """A number that is none."""


class Loop:
    """One run. `config` says what; `agent` learns; subclasses say which skill acts and what is measured."""

    def __init__(self, run: Run, config: LoopConfig, env_name: str, agent: Agent, quiet: bool = False) -> None:
        torch.set_num_threads(config.threads)
        self.run, self.config, self.agent, self.quiet = run, config, agent, quiet
        self.env = make(env_name, num_envs=config.num_envs, seed=config.seed)
        self.rng = np.random.default_rng(config.seed)
        self.replay = Replay(
            agent.spaces,
            agent.objective.skill.dim,
            config.replay,
            config.num_envs,
            config.agent.nstep,
            config.agent.gamma,
        )
        self.start = config.warmup  # the step before which nothing is updated
        self.step = self.updates = self.next_log = 0
        self.tasks = self.env.tasks or ("reward",)
        self.running_return = np.zeros((len(self.tasks), config.num_envs))
        self.finished_return = np.zeros(len(self.tasks))
        self.finished_count = np.zeros(1, np.int64)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cic-env")
        self._stop: str | None = None
        self._result: dict[str, Any] | None = None
        self._saved_at = -1
        self._latest: Metrics = {}
        self.obs: Array = np.zeros((config.num_envs, agent.spaces.obs), np.float32)

    # ---- what subclasses say -----------------------------------------------------------------------------------

    title = ""

    def skills(self) -> Array:
        """(N, dim): the skill of every copy for the coming step."""
        raise NotImplementedError

    def uniform(self) -> bool:
        """Are actions drawn uniformly at this step?"""
        raise NotImplementedError

    def observe(self, reward: Array, done: npt.NDArray[np.bool_]) -> None:
        """After each step."""
        raise NotImplementedError

    def lesson(self, batch: Batch) -> Batch:
        """What the agent learns from a batch."""
        return batch

    def measure(self) -> dict[str, float]:
        """Numbers for a log line."""
        return {}

    def at_boundary(self) -> None:
        """After each step and its bookkeeping: evaluations, milestones."""

    def result(self) -> dict[str, Any]:
        raise NotImplementedError

    def extra_state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        return {}, {}

    def restore_extra(self, arrays: dict[str, npt.NDArray[Any]], state: dict[str, Any]) -> None:
        pass

    # ---- the loop ----------------------------------------------------------------------------------------------

    def train(self) -> dict[str, Any]:
        """Run to the end, or until a signal asks to save and stop."""
        self.run.lock()
        restore_signals = self._catch_signals()
        try:
            resumed = self._resume()
            sizes = (resumed["metrics_bytes"], resumed["timing_bytes"]) if resumed else (0, 0)
            self.logs = Logs(self.run.path, sizes, self.step, self.config.wandb, self.run.config)
            self.run.write_status("running", self.step)
            with self.logs, Reporter(self.title, self.config.steps, self.step, self.quiet) as self.reporter:
                if not resumed:
                    self.obs, _ = self.env.reset(seed=self.config.seed)
                if compilation.wanted(self.config.compile, self._earned(self.config.steps)):
                    self.reporter.say("the first update takes a while: it is compiled (up to half a minute)")
                    self.agent.compile_gradients()
                while self.step < self.config.steps and not self._stop:
                    self._tick()
                return self._finish()
        except BaseException as error:
            if not isinstance(error, Interrupted):
                self._try_status("failed", str(error) or type(error).__name__)
            raise
        finally:
            restore_signals()
            self._pool.shutdown()
            self.env.close()
            self.run.unlock()

    def _tick(self) -> None:
        skill = self.skills()
        action = self._action(skill)
        due = self._due()
        if due:
            pending = self._pool.submit(self.env.step, action)
            try:
                metrics, batch = self._update(due)
            finally:
                outcome = pending.result()
        else:
            metrics, batch, outcome = {}, None, self.env.step(action)
        if self.step >= self.next_log and (batch is not None or self.step <= self.start):
            self._log(metrics, batch)
        self._store(skill, action, outcome)
        self.at_boundary()
        if self.crossed(self.config.checkpoint_every) and self.step < self.config.steps:  # the end has its own
            self.checkpoint()
        self.reporter.advance(self.step)

    def _action(self, skill: Array) -> Array:
        if self.uniform():
            return self.rng.uniform(-1, 1, (self.config.num_envs, self.agent.spaces.action)).astype(np.float32)
        action = self.agent.act(self.obs, skill, explore=True)
        if not np.isfinite(action).all():
            self.require_finite_update()
            raise Diverged(f"the policy's actions are not finite at step {self.step}: {self._last_good()}")
        return action

    def _due(self) -> int:
        if self.step < self.start or not self.replay.ready():
            return 0
        return self._earned(self.step) - self.updates

    def _earned(self, step: int) -> int:
        return (step - self.config.warmup) // self.config.update_every

    def _update(self, count: int) -> tuple[Metrics, Batch]:
        for _ in range(count):
            batch = self.lesson(self._to_device(self.replay.sample(self.config.agent.batch, self.rng)))
            metrics = self.agent.update(batch, actor=self.updates >= self._earned(self.start))
            self.updates += 1
        self._latest = metrics
        return metrics, batch

    def _to_device(self, batch: Batch) -> Batch:
        if self.agent.device.type == "cpu":
            return batch
        return Batch(*(tensor.to(self.agent.device, non_blocking=True) for tensor in batch))

    def _store(self, skill: Array, action: Array, outcome: Outcome) -> None:
        obs, reward, terminated, truncated, info = outcome
        done = terminated | truncated
        self.replay.add(self.obs, skill, action, reward, terminated)
        rewards = info.get("rewards", {})
        self.running_return += [rewards.get(task, reward) for task in self.tasks]
        self.obs = obs
        self.finished_return += self.running_return[:, done].sum(axis=1)
        self.finished_count += int(done.sum())
        self.observe(reward, done)
        if done.any():
            self.replay.finish(obs, done)
            self.running_return[:, done] = 0
            self.obs, _ = self.env.reset(options={"reset_mask": done})
        self.step += self.config.num_envs

    def crossed(self, every: int) -> bool:
        return self.step // every > (self.step - self.config.num_envs) // every

    def _finish(self) -> dict[str, Any]:
        if self._stop:
            self.checkpoint()
            self.run.write_status("interrupted", self.step, f"stopped by {self._stop}")
            raise Interrupted(self._stop, self.step, self.run)
        if self._result is None:  # else the run was killed after its last checkpoint
            due = self._due()
            metrics, batch = self._update(due) if due else ({}, None)
            self._log(metrics, batch)
            self._result = self.result() | {"step": self.step}
            self.checkpoint()
        self.run.write_result(self._result)
        self.run.write_status("finished", self.step)
        return self._result

    # ---- logging -----------------------------------------------------------------------------------------------

    def _log(self, metrics: Metrics, batch: Batch | None) -> None:
        numbers = {name: float(value) for name, value in metrics.items()}
        self.require_finite(numbers)  # before the diagnosis, whose eigenvalues exist only for numbers
        if batch is not None and self.agent.learn_objective:
            numbers |= {name: float(value) for name, value in self.agent.objective.diagnose(batch).items()}
        numbers |= self.measure()
        if self.finished_count[0]:
            means = self.finished_return / self.finished_count[0]
            numbers |= {self.return_key(task): float(mean) for task, mean in zip(self.tasks, means, strict=True)}
            self.finished_return[:], self.finished_count[:] = 0, 0
        self.require_finite(numbers)
        self.write_metrics(numbers)
        self.logs.write_timing(
            {"step": self.step, "time/steps_per_second": self.reporter.rate, "time/unix": time.time()}
        )
        self.next_log = (self.step // self.config.log_every + 1) * self.config.log_every
        self._show(numbers)

    def return_key(self, task: str) -> str:
        return f"zero_shot/{task}"

    def write_metrics(self, numbers: dict[str, float]) -> None:
        self.logs.write({"step": self.step, "update": self.updates} | numbers)

    def _show(self, numbers: dict[str, float]) -> None:
        shown = {"reward/intrinsic": "intrinsic", "train/return": "return", "coverage/fraction": "coverage"}
        self.reporter.note(**{label: numbers[key] for key, label in shown.items() if key in numbers})
        self.run.write_status("running", self.step)

    def require_finite(self, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            if not math.isfinite(value):
                raise Diverged(f"{name} became {value} by step {self.step}: {self._last_good()}")

    def require_finite_update(self) -> None:
        """Before the weights are used for something costly: what the latest update said of itself."""
        self.require_finite({name: float(value) for name, value in self._latest.items()})

    def _last_good(self) -> str:
        kept = self.run.checkpoints()
        where = (
            f"the last good checkpoint is that of step {int(kept[-1].name)}" if kept else "there is no checkpoint yet"
        )
        return f"{where}; a smaller --lr usually helps"

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Everything that decides what comes next, in one folder."""
        if self._saved_at == self.step and self._result is None:
            return
        self.require_finite_update()
        for name, value in self.agent.state_dict().items():
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                raise Diverged(f"the weights {name} are not finite at step {self.step}: {self._last_good()}")
        arrays, state = self.extra_state()
        loop: dict[str, npt.NDArray[Any]] = {
            "obs": self.obs,
            "running_return": self.running_return,
            "finished_return": self.finished_return,
            "finished_count": self.finished_count,
        }
        self.run.save_checkpoint(
            self.step,
            {"agent": self.agent.state_dict(), "optimisers": self.agent.optimiser_state()},
            {"replay": self.replay.state(), "env": self.env.state(), "loop": loop, "extra": arrays},
            {
                "step": self.step,
                "updates": self.updates,
                "next_log": self.next_log,
                "rng": self.rng.bit_generator.state,
                "metrics_bytes": self.logs.metrics.size(),
                "timing_bytes": self.logs.timing.size(),
                "extra": state,
                "result": self._result,
            },
        )
        self._saved_at = self.step

    def _resume(self) -> dict[str, Any] | None:
        loaded = self.run.load_checkpoint()
        if loaded is None:
            return None
        tensors, arrays, state = loaded
        self.agent.load_state_dict(tensors["agent"])
        self.agent.load_optimiser_state(tensors["optimisers"])
        self.replay.restore(arrays["replay"])
        self.env.restore(arrays["env"])
        for name in ("obs", "running_return", "finished_return", "finished_count"):
            setattr(self, name, np.array(arrays["loop"][name]))
        self.step, self.updates, self.next_log = state["step"], state["updates"], state["next_log"]
        self.rng.bit_generator.state = state["rng"]
        self.restore_extra(arrays["extra"], state["extra"])
        self._result, self._saved_at = state["result"], self.step
        return dict(state)

    # ---- signals -----------------------------------------------------------------------------------------------

    def _catch_signals(self) -> Callable[[], None]:
        """SIGINT and SIGTERM finish the step at hand and save; a second one stops at once."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None

        def ask(number: int, frame: FrameType | None) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self._stop = signal.Signals(number).name

        previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}

        def restore() -> None:
            for number, handler in previous.items():
                signal.signal(number, handler)

        return restore

    def _try_status(self, state: str, message: str) -> None:
        with contextlib.suppress(OSError):  # a full disk: the error itself is what the user must see
            self.run.write_status(state, self.step, message)


class Interrupted(Exception):
    """The user stopped the run; it is saved."""

    def __init__(self, by: str, step: int, run: Run) -> None:
        super().__init__(f"{by}: saved at step {step}; continue with `cic {run.kind} --resume {run.path}`")
