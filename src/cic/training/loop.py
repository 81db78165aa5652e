"""The only loop: act, update, step, store, log, checkpoint. What differs between the phases is in the phases.

An update that is due comes before the step at whose beginning it fell due is stored: it could not have sampled that
step anyway, whose n-step return is not complete. There is exactly one update per `update_every` steps after the
warm-up; those that come due before the phase's first update are made up there.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cic.core.errors import Interrupted, UserError
from cic.core.types import Array, Batch, Bools, Metrics
from cic.envs.base import VectorEnv
from cic.learning import compilation
from cic.learning.agent import Agent
from cic.learning.replay import Replay
from cic.runs.folder import Run
from cic.runs.storage import Arrays, Tensors, load_weights
from cic.training import checkpoint_checks
from cic.training.logs import LOGS, Logs
from cic.training.phase import Phase
from cic.training.progress import Reporter
from cic.training.settings import LoopConfig
from cic.training.signals import StopRequest

HEARTBEAT = 30.0  # seconds between two signs of life in status.json


class Diverged(UserError):
    """A number that is none."""


class Loop:
    """One run, from parts that are given: `config` says how long, `agent` learns, `phase` says what differs."""

    _COUNTERS = ("step", "updates", "next_log")
    _ARRAYS = ("obs", "running_return", "finished_return", "finished_count")

    def __init__(
        self, run: Run, config: LoopConfig[Any], env: VectorEnv, agent: Agent, phase: Phase, quiet: bool = False
    ) -> None:
        torch.set_num_threads(config.threads)
        self.run, self.config, self.env, self.agent, self.phase, self.quiet = run, config, env, agent, phase, quiet
        self.rng = np.random.default_rng(config.seed)
        self.needs, self.tasks, copies = phase.needs(agent), phase.tasks(env), config.num_envs
        self.replay = Replay(
            agent.spaces,
            agent.objective.skills.dim,
            config.replay,
            copies,
            self.needs.nstep or config.learning.nstep,
            config.learning.gamma,
            len(env.tasks),
            self._physics_width(),
        )
        self.step = self.updates = self.next_log = 0
        self.obs: Array = np.zeros((copies, agent.spaces.obs), np.float32)
        self.running_return = np.zeros((len(self.tasks), copies))
        self.finished_return = np.zeros(len(self.tasks))
        self.finished_count = np.zeros(1, np.int64)
        self._result: dict[str, Any] | None = None
        self._saved_at = -1
        self._beat = 0.0
        self._latest: Metrics = {}
        phase.start(self)

    def _physics_width(self) -> int:
        """Numbers of the simulator's state that the replay keeps."""
        if not self.config.keep_physics:
            return 0
        if not (width := self.env.physics().shape[1]):
            raise UserError(f"{self.env.name} does not tell its simulator's state: drop --keep-physics")
        return int(width)

    def _physics(self) -> npt.NDArray[np.float64] | None:
        return self.env.physics() if self.config.keep_physics else None

    # ---- from the first step to the last -----------------------------------------------------------------------

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
        self.logs = Logs(self.run.path, resumed, self.step, self.config, self.run.config)
        self._alive()
        total = -(-self.config.steps // self.config.num_envs) * self.config.num_envs  # copies step together
        with self.logs, Reporter(self.phase.title, total, self.step, self.quiet) as self.reporter:
            if not resumed:
                self.obs, _ = self.env.reset(seed=self.config.seed)
            if compilation.wanted(self.config.compile, self.earned(self.config.steps)):
                self.reporter.say("the first update takes a while: it is compiled (up to half a minute)")
                self.agent.compile_losses()
            while self.step < self.config.steps and not self.stop.by:
                self._tick()
            return self._finish()

    def _tick(self) -> None:
        skill, begins = self.phase.skills()
        action = self._action(skill)
        metrics, batch = self._update(self._due())
        if self.step >= self.next_log and (batch is not None or self.step <= self.phase.first_update):
            self._log(metrics, batch)
        self._store(skill, begins, action)
        self.phase.at_boundary()
        if self.crossed(self.config.checkpoint_every) and self.step < self.config.steps and self.phase.learns():
            self.checkpoint()  # the end has its own, and what only the end does could not be made longer
        self.reporter.advance(self.step)
        if time.monotonic() - self._beat > HEARTBEAT:
            self._alive()

    def _alive(self) -> None:
        self.run.write_status("running", self.step)
        self._beat = time.monotonic()

    def _action(self, skill: Array) -> Array:
        if self.phase.uniform():
            return self.rng.uniform(-1, 1, (self.config.num_envs, self.agent.spaces.action)).astype(np.float32)
        action = self.phase.act(self.obs, skill)
        if not np.isfinite(action).all():
            self.require_finite_update()
            raise Diverged(f"the policy's actions are not finite at step {self.step}: {self._last_good()}")
        return action

    def _due(self) -> int:
        if self.step < self.phase.first_update or not self.phase.learns() or not self.replay.ready():
            return 0
        return self.earned(self.step) - self.updates

    def earned(self, step: int) -> int:
        """Updates that fall due until a step."""
        return (step - self.config.warmup) // self.config.update_every

    def _update(self, count: int) -> tuple[Metrics, Batch | None]:
        metrics, batch = {}, None
        if self.phase.intrinsic:
            self.agent.objective.progress = self.step / self.config.steps
        for _ in range(count):
            batches = [self._sample() for _ in range(self.needs.batches)]
            metrics = self.agent.update(*batches, intrinsic=self.phase.intrinsic, actor=self.phase.moves_actor())
            batch = batches[-1]
            self.updates += 1
        self._latest = metrics or self._latest
        return metrics, batch

    def _sample(self) -> Batch:
        batch = self.phase.sample(self.config.learning.batch)
        return self.phase.relabel(batch.to(self.agent.device))

    def _store(self, skill: Array, begins: Bools, action: Array) -> None:
        physics = self._physics()
        obs, reward, terminated, truncated, info = self.env.step(action)
        done = terminated | truncated
        rewards = info.get("rewards", {})
        by_task = np.stack([rewards[task] for task in self.env.tasks], axis=1) if rewards else None
        self.replay.add(
            self.obs, skill, action, reward, terminated, begins=begins, task_rewards=by_task, physics=physics
        )
        self.running_return += [rewards.get(task, reward) for task in self.tasks]
        self.obs = obs
        self.finished_return += self.running_return[:, done].sum(axis=1)
        self.finished_count += int(done.sum())
        self.phase.after_step(reward, done)
        cut = self.phase.cuts()
        if cut or done.any():
            self._begin_episodes(np.ones_like(done) if cut else done, self.phase.start_seed() if cut else None)
        self.step += self.config.num_envs

    def _begin_episodes(self, done: Bools, seed: int | None = None) -> None:
        self.replay.finish(self.obs, done, self._physics())
        self.running_return[:, done] = 0
        self.obs, _ = self.env.reset(seed=seed, options={"reset_mask": done})

    def crossed(self, every: int) -> bool:
        """Did the latest step reach a multiple of `every`?"""
        return self.step // every > (self.step - self.config.num_envs) // every

    def _finish(self) -> dict[str, Any]:
        if self.stop.by:
            self.checkpoint()
            self.run.write_status("interrupted", self.step, f"stopped by {self.stop.by}")
            raise Interrupted(
                f"{self.stop.by}: saved at step {self.step}; "
                f"continue with `cic {self.run.kind} --resume {self.run.path}`"
            )
        if self._result is None:  # else the run was killed after its last checkpoint
            self._log(*self._update(self._due()))
            self._result = self.phase.result() | {"step": self.step}
            self.checkpoint()
        self.run.write_result(self._result)
        self.run.write_status("finished", self.step)
        return self._result

    # ---- logging -----------------------------------------------------------------------------------------------

    def _log(self, metrics: Metrics, batch: Batch | None) -> None:
        numbers = {name: float(value) for name, value in metrics.items()}
        self.require_finite(numbers)  # before the diagnosis, whose eigenvalues exist only for numbers
        if batch is not None and self.phase.intrinsic:
            found = self.agent.objective.diagnose(self.agent.encode(batch, detached=True))
            numbers |= {name: float(value) for name, value in found.items()}
        numbers |= self.phase.measure()
        if self.finished_count[0]:
            means = self.finished_return / self.finished_count[0]
            numbers |= {self.phase.return_key(task): float(mean) for task, mean in zip(self.tasks, means, strict=True)}
            self.finished_return[:], self.finished_count[:] = 0, 0
        self.require_finite(numbers)
        self.write_metrics(numbers)
        self.logs.write_timing(
            {"step": self.step, "time/steps_per_second": self.reporter.rate, "time/unix": time.time()}
        )
        self.next_log = (self.step // self.config.log_every + 1) * self.config.log_every
        self._show(numbers)

    def write_metrics(self, numbers: dict[str, float]) -> None:
        self.logs.write({"step": self.step, "update": self.updates} | numbers)

    def _show(self, numbers: dict[str, float]) -> None:
        shown = {"reward/intrinsic": "intrinsic", "train/return": "return", "coverage/fraction": "coverage"}
        self.reporter.note(self.step, **{label: numbers[key] for key, label in shown.items() if key in numbers})
        self._alive()

    def require_finite(self, numbers: dict[str, float]) -> None:
        reward = numbers.get("reward/intrinsic", 0.0)
        if not math.isfinite(reward) and self._sound_objective():
            where = f"{type(self.agent.objective).__name__}.reward(batch)"
            raise Diverged(f"the reward is {reward} by step {self.step}: look at {where}, its weights are sound")
        for name, value in numbers.items():
            if not math.isfinite(value):
                raise Diverged(f"{name} became {value} by step {self.step}: {self._last_good()}")

    def _sound_objective(self) -> bool:
        """Are the method's weights such that its reward is its own doing?"""
        return all(bool((value.abs() < 1e6).all()) for value in self.agent.objective.parameters())

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
        tensors = {"agent": self.agent.state_dict(), "optimisers": self.agent.optimiser_state()}
        for part, values in tensors.items():
            for name, value in values.items():
                if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                    what = "weights" if part == "agent" else "optimiser's"
                    raise Diverged(f"the {what} {name} are not finite at step {self.step}: {self._last_good()}")
        arrays, state = self.phase.state()
        self.run.save_checkpoint(
            self.step,
            tensors,
            {"replay": self.replay.state(), "env": self.env.state(), "loop": self._own_arrays(), "phase": arrays},
            {name: getattr(self, name) for name in self._COUNTERS}
            | {"rng": self.rng.bit_generator.state, "phase": state, "result": self._result},
            (self.logs.metrics, self.logs.timing),
        )
        self._saved_at = self.step

    def _own_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {name: getattr(self, name) for name in self._ARRAYS}

    def _resume(self) -> Path | None:
        """Continue from the newest good checkpoint and return its folder; None if there is none yet."""
        loaded = self.run.load_checkpoint(checkpoint_checks.size_limits(self.agent, self.replay, self._own_arrays()))
        if loaded is None:
            return None
        folder = self.run.checkpoints()[-1]
        with checkpoint_checks.fitting(folder):
            checkpoint_checks.need(all((folder / name).is_file() for name in LOGS), f"it lacks {' or '.join(LOGS)}")
            self._restore(*loaded)
        return folder

    def _restore(self, tensors: dict[str, Tensors], arrays: dict[str, Arrays], state: dict[str, Any]) -> None:
        load_weights(self.agent, tensors["agent"], self.run.path)
        self.agent.restore_optimisers(tensors["optimisers"] | self._fresh_generator())
        checkpoint_checks.require_replay(arrays["replay"], self.replay)
        self.replay.restore(arrays["replay"])
        checkpoint_checks.require_like(arrays["loop"], self._own_arrays())
        for name in self._ARRAYS:
            setattr(self, name, np.array(arrays["loop"][name]))
        self.step = checkpoint_checks.whole(state, "step", 0, self.config.steps + self.config.num_envs)
        self.updates = checkpoint_checks.whole(state, "updates", 0, max(self.earned(self.step), 0))
        self.next_log = checkpoint_checks.whole(state, "next_log", 0, self.step + self.config.log_every)
        self.rng.bit_generator.state = state["rng"]
        self.phase.restore(arrays.get("phase", {}), state["phase"])
        checkpoint_checks.need(isinstance(state["result"], dict | None), "result must be an object")
        self._result, self._saved_at = state["result"], self.step
        self.env.restore(arrays["env"])
        if not self.env.exact_state:  # its episodes begin anew, and so they do everywhere
            self.phase.after_restart()
            self._begin_episodes(np.ones(self.config.num_envs, np.bool_))

    def _fresh_generator(self) -> Tensors:
        """The agent's own, where the run goes on with another device: their generators have other states."""
        if self.config.device == self.run.config.get("device", self.config.device):
            return {}
        warnings.warn(
            "the run goes on with another device: its random numbers begin anew, not to the bit", stacklevel=2
        )
        return {"generator": self.agent.optimiser_state()["generator"]}

    def _try_status(self, state: str, message: str) -> None:
        with contextlib.suppress(OSError):  # a full disk: the error itself is what the user must see
            self.run.write_status(state, self.step, message)
