"""Runs as Ray tasks, on the cores of this machine or on a cluster. This is the only module that imports Ray."""

from __future__ import annotations

import logging
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from cic import __version__
from cic.core.errors import UserError
from cic.sweep.command import SweepOptions
from cic.sweep.driver import Executor
from cic.sweep.specs import RunSpec
from cic.sweep.worker import RunResult, SweepContext, check_node, run_one

_RETRIES = 3
_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 20.0
_NODE_SECONDS = 60.0
_SAVE_SECONDS = 120.0
_OBJECT_STORE = 100 << 20  # bytes; specs and results are small
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # otherwise the log of every node that dies is printed here
    "RAY_task_oom_retries": str(_RETRIES),
}


class RayExecutor(Executor):
    """One Ray task per run. Ray places the tasks, waits for dependencies, and retries a task whose worker is lost."""

    def __init__(self, context: SweepContext, specs: Sequence[RunSpec], options: SweepOptions) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import ray

        super().__init__(context)
        self.ray, self.options = ray, options
        self.limit = options.slots or math.inf
        cpus = max(spec.needs.cpus for spec in specs)
        connect(options.address, max(1, int(options.slots * cpus) if options.slots else max(cores(), int(cpus))))
        try:
            self._check_nodes()
            self._check_resources(specs)
        except BaseException:
            self.close()
            raise
        self._context = ray.put(context)
        # `run_one` returns the errors of a run, so an exception comes from the store, and the run is retried.
        self._task = ray.remote(max_retries=_RETRIES, retry_exceptions=True)(run_one)

    # ---- runs --------------------------------------------------------------------------------------------------

    def submit(self, spec: RunSpec, dependencies: Sequence[Any]) -> Any:
        needs = spec.needs
        memory = int(round(needs.memory, 1) * 1e9)  # rounded, because Ray keeps a queue per combination
        task = self._task.options(name=spec.name, num_cpus=needs.cpus, num_gpus=needs.gpus, memory=memory)
        return task.remote(self._context, spec, *dependencies)

    def wait(self, handles: dict[str, Any], seconds: float = 1.0) -> list[str]:
        refs = list(handles.values())
        if self.ray.wait(refs, num_returns=1, timeout=seconds)[0]:
            ready = set(self.ray.wait(refs, num_returns=len(refs), timeout=0)[0])
            return [folder for folder, ref in handles.items() if ref in ready]
        return []

    def result(self, handle: Any) -> RunResult:
        errors = self.ray.exceptions
        try:
            found: RunResult = self.ray.get(handle)
            return found
        except errors.TaskCancelledError:
            return RunResult("stopped")
        except errors.RayTaskError as error:
            if isinstance(error.cause, KeyboardInterrupt):
                return RunResult("stopped")
            return RunResult("failed", _reason(error), str(error)[-2000:])
        except errors.RayError as error:  # the worker or its node was lost
            reason = str(error).strip().splitlines()[0]
            return RunResult("failed", f"its worker died {_RETRIES + 1} times: {type(error).__name__}: {reason}")

    def stop(self, handles: dict[str, Any]) -> dict[str, RunResult]:
        if not self.options.quiet:
            text = "stopping: every run saves a checkpoint first (Ctrl-C again to leave at once)"
            print(f"cic: {text}", file=sys.stderr, flush=True)
        for handle in reversed(list(handles.values())):  # the last ones have not started yet
            self.ray.cancel(handle)  # as Ctrl-C in the worker's main thread
        ended: dict[str, RunResult] = {}
        end = time.monotonic() + _SAVE_SECONDS
        while len(ended) < len(handles) and time.monotonic() < end:
            left = {folder: handle for folder, handle in handles.items() if folder not in ended}
            ended |= {folder: self.result(handles[folder]) for folder in self.wait(left)}
        return ended

    def close(self) -> None:
        self.ray.shutdown()

    # ---- checks before the first run ---------------------------------------------------------------------------

    def _check_nodes(self) -> None:
        """Require that every node has this version of cic and sees the store."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        check = self.ray.remote(num_cpus=0, max_retries=0)(check_node)
        answers = {}
        for node in self.ray.nodes():
            if node["Alive"]:
                task = check.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
                answers[task.remote(self.context, __version__)] = f"the node {node['NodeManagerHostname']}"
        for answer, name in answers.items():
            try:
                problem = self.ray.get(answer, timeout=_NODE_SECONDS)
            except self.ray.exceptions.GetTimeoutError:
                problem = f"{name} does not answer within {_NODE_SECONDS:.0f} s: look at it with `ray status`"
            except self.ray.exceptions.RayError as error:
                problem = f"{name} cannot take part: {_reason(error)}"
            if problem:
                raise UserError(problem)

    def _check_resources(self, specs: Sequence[RunSpec]) -> None:
        """Require a node that is large enough for each run; a cluster may get one later."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        for needs in {spec.needs for spec in specs}:
            wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory * 1e9}
            if not any(all(node.get(name, 0) >= value for name, value in wanted.items()) for node in nodes):
                text = f"no node has what a run needs: {needs.cpus:g} CPUs, {needs.gpus:g} GPUs, {needs.memory:.1f} GB"
                if self.options.address is None:
                    raise UserError(f"{text}; change `cpus`, `gpus` or `memory`")
                print(f"cic: {text}; such runs wait for a larger node", file=sys.stderr)


def _reason(error: Exception) -> str:
    if "No module named 'cic" in str(error):
        return (
            f"it lacks the package cic: install version {__version__} on every node (pip install '.[sweep]' in a clone)"
        )
    cause = getattr(error, "cause", None) or error
    return str(cause).strip().splitlines()[-1]


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---- connecting ------------------------------------------------------------------------------------------------


def connect(address: str | None, cpus: int) -> None:
    """Start Ray on this machine, or join a cluster."""
    import ray

    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, object_store_memory=_OBJECT_STORE, **quiet)
        return
    _check_address(address)
    try:
        ray.init(address=address, **quiet)
    except Exception as error:  # Ray has many
        raise UserError(f"cannot join the Ray cluster at {address}: {str(error).strip().splitlines()[0]}") from None


def _check_address(address: str) -> None:
    """Report an unreachable address soon; `ray.init` would try for minutes."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise UserError(f'the address of a Ray cluster is HOST:PORT or auto, not "{address}"')
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
        raise UserError(
            f"no Ray cluster at {address} ({reason}): is a Ray head node running there, and the port open?"
        ) from None
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True)
    except subprocess.TimeoutExpired:
        raise UserError(f"no Ray head answers at {address}: give the address that `ray start` printed") from None
    except subprocess.CalledProcessError as error:  # another version of Ray or Python, a missing token
        reason = (error.stderr.strip().splitlines() or ["no answer"])[-1]
        raise UserError(
            f"no Ray head answers at {address}: give the address that `ray start` printed ({reason})"
        ) from None
