"""Parallel environments of the user's in several processes, bit-exact with those in one process.

Each worker process has some of the environments, in order. A call is sent to all workers, then all replies are
collected. Workers talk through the pipes of their standard input and output, so they neither need a free port nor
import the user's main script. They end when the pipe is closed, also if this process is killed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils import CloudpickleWrapper

from cic.core.action_spaces import choices
from cic.core.config import require
from cic.core.errors import UserError
from cic.core.imports import imported
from cic.core.observations import Part, parts_of
from cic.core.spaces import Layout, entry_names, flat_bounds
from cic.core.types import Array
from cic.envs.base import State, StepArrays, VectorEnv, check_num_envs

_PER_ENV = ("steps", "over", "obs", "pending")
_CLOSE_SECONDS = 10.0


class WorkerEnv(VectorEnv):
    """The environments of `GymEnv`, stepped by `workers` processes."""

    def __init__(
        self, name: str, factory: Callable[[], Any], num_envs: int, seed: int, timeout: float, workers: int
    ) -> None:
        check_num_envs(num_envs)
        require(
            1 <= workers <= num_envs, f"workers must be at least 1 and at most num_envs ({num_envs}), not {workers}"
        )
        edges = [num_envs * index // workers for index in range(workers + 1)]
        self._slices = [slice(first, last) for first, last in itertools.pairwise(edges)]
        self._workers: list[_Worker] = []
        try:
            for part in self._slices:
                self._workers.append(_Worker(name, part))
            for worker in self._workers:
                worker.send(imported(), _packed(name, factory), name, worker.count, worker.first, seed, timeout)
            abouts = self._replies()
            for about, part in zip(abouts, self._slices, strict=True):
                if about["layout"] != abouts[0]["layout"]:
                    raise UserError(f"{name}: environment {part.start} has other spaces than environment 0")
        except BaseException:
            self.close_extras()
            raise
        layout = self._layout = Layout.from_json(abouts[0]["layout"], name)
        obs, action, *_ = abouts[0]["sizes"]
        super().__init__(name, obs, action, num_envs, *flat_bounds(layout.observation), choices(layout.action))
        self.domain, self.task, self.tasks, self.coverage = name, None, (), None
        self.episode_length, self.exact_state = abouts[0]["episode_length"], abouts[0]["exact_state"]

    def _all(self, method: str, *arguments: list[Any]) -> list[Any]:
        """Call a method in every worker, with one item of each argument; return the results."""
        for index, worker in enumerate(self._workers):
            worker.send(method, *(argument[index] for argument in arguments))
        return self._replies()

    def _replies(self) -> list[Any]:
        """The reply of every worker. Of several errors, that of the first environment is raised."""
        found: list[Any] = []
        for worker in self._workers:
            try:
                found.append(worker.receive())
            except UserError as error:
                found.append(error)
        for reply in found:
            if isinstance(reply, UserError):
                raise reply
        return found

    def _split(self, array: Any) -> list[Any]:
        return [array[part] for part in self._slices]

    def step(self, actions: Array) -> StepArrays:
        replies = self._all("step", self._split(self._check_actions(actions)))
        obs, reward, terminated, truncated = (np.concatenate(parts) for parts in zip(*replies, strict=True))
        self._over = terminated | truncated
        return StepArrays(obs, reward, terminated, truncated, {})

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        self._check_open()
        mask = self._reset_mask(options)
        seeds = [None] * len(self._workers) if seed is None else self._split(self._seeds(seed))
        obs = np.concatenate(self._all("reset", seeds, self._split(mask)))
        self._over[mask] = False
        return obs, {}

    def state(self) -> State:
        """The state that one process would have: a run may resume with another number of workers."""
        states: list[State] = self._all("state")
        merged = {key: np.concatenate([state[key] for state in states]) for key in _PER_ENV}
        return merged | {key: value for state in states for key, value in state.items() if key not in _PER_ENV}

    def restore(self, state: State) -> None:
        self._check_open()
        obs = np.zeros((self.num_envs, self.spaces.obs), np.float32)
        self._check_state(state, {"steps": self._steps, "over": self._over, "obs": obs, "pending": self._steps})
        parts = []
        for part in self._slices:
            own = tuple(f"env{index}/" for index in range(part.start, part.stop))
            parts.append({key: value[part] for key, value in state.items() if key in _PER_ENV})
            parts[-1] |= {key: value for key, value in state.items() if key.startswith(own)}
        self._all("restore", parts)
        self._over = state["over"].astype(np.bool_)

    def physics(self) -> npt.NDArray[np.float64]:
        return np.concatenate(self._all("physics"))

    def render(self, index: int = 0, width: int = 320, height: int = 240) -> npt.NDArray[np.uint8]:  # type: ignore[override]
        self._check_open()
        (worker,) = [one for one in self._workers if one.first <= index < one.first + one.count]
        worker.send("render", index - worker.first, width, height)
        picture: npt.NDArray[np.uint8] = worker.receive()
        return picture

    def entry_names(self) -> list[str]:
        return entry_names(self._layout.observation)

    def _observed_parts(self) -> tuple[Part, ...]:
        return parts_of(self._layout.observation)

    @property
    def layout(self) -> Layout:
        return self._layout

    # The methods of the base class that step environments in this process.

    def _reseed(self, index: int, seed: int) -> None:
        raise NotImplementedError

    def _begin(self, index: int) -> None:
        raise NotImplementedError

    def _observe(self) -> Array:
        raise NotImplementedError

    def close_extras(self, **kwargs: Any) -> None:
        for worker in self._workers:
            worker.hang_up()
        for worker in self._workers:
            worker.wait()


def _packed(name: str, factory: Callable[[], Any]) -> bytes:
    try:
        return pickle.dumps(CloudpickleWrapper(factory))
    except Exception as error:  # whatever the factory refers to
        reason = " ".join(str(error).split())
        raise UserError(
            f'workers need a factory of "{name}" that can be sent to another process ({reason}): make files, '
            "connections and locks inside of the factory, or omit `workers`"
        ) from None


class _Worker:
    """One process with the environments of a slice."""

    def __init__(self, name: str, part: slice) -> None:
        self.name, self.first, self.count = name, part.start, part.stop - part.start
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from cic.envs.worker_process import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": paths},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests: IO[bytes] = self._process.stdin
        self._results: IO[bytes] = self._process.stdout

    def send(self, *message: Any) -> None:
        with contextlib.suppress(OSError):  # if it died, `receive` reports this
            pickle.dump(message, self._requests, pickle.HIGHEST_PROTOCOL)
            self._requests.flush()

    def receive(self) -> Any:
        """The result of the last message, or the error that the worker reports."""
        try:
            succeeded, result = pickle.load(self._results)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise UserError(self._death()) from None
        if not succeeded:
            raise UserError(result)
        return result

    def _death(self) -> str:
        last = self.first + self.count - 1
        which = f"environment {self.first}" if not last - self.first else f"environments {self.first} to {last}"
        code = self.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return (
            f"{self.name}: the worker process of {which} ended with {how}: the simulator crashed or memory ran out; "
            "fix this and resume the run from its last checkpoint"
        )

    def hang_up(self) -> None:
        """Close the pipe, so that the worker closes its environments and ends."""
        with contextlib.suppress(OSError):
            self._requests.close()

    def wait(self) -> int:
        """Wait for the end of the process and return its exit code."""
        try:
            code = self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._results.close()
        return code
