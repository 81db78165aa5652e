"""Runs on Ray: this machine's cores, or a cluster. The only module that imports it."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from cic import __version__
from cic.core.errors import UserError
from cic.sweep.jobs import Job
from cic.sweep.plan import Needs
from cic.sweep.scheduler import Outcome
from cic.sweep.work import Orders, Train, check_node, execute

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 20.0
_NODE_SECONDS = 60.0
_SAVE_SECONDS = 120.0
_LOOK_SECONDS = 5.0
_OBJECT_STORE = 100 << 20  # bytes; jobs and outcomes are small, and runs share nothing else

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # or the log of every node that dies is printed here
}


class RayPool:
    """A Ray task per run. Ray finds a node for each; which run is next is the scheduler's business."""

    stopped = False

    def __init__(
        self,
        orders: Orders,
        jobs: Sequence[Job],
        address: str | None = None,
        slots: int | None = None,
        train: Train | None = None,
    ) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import ray

        self.ray, self.orders, self.train = ray, orders, train
        self.address, self.slots = address, slots
        self._smallest = Needs(*(min(getattr(job.needs, name) for job in jobs) for name in ("cpus", "gpus", "memory")))
        self._refs: dict[Any, Job] = {}
        self._capacity, self._looked = 1, -_LOOK_SECONDS
        cpus = max(job.needs.cpus for job in jobs)
        connect(address, max(1, int((slots or 1) * cpus)) if slots else max(cores(), int(cpus)))
        try:
            self._require_nodes()
            self._require_fit(jobs)
        except BaseException:
            self.close()
            raise
        self._run = ray.remote(max_retries=0)(execute)

    # ---- runs --------------------------------------------------------------------------------------------------

    def has_room(self, running: int) -> bool:
        if self.slots is not None:
            return running < self.slots
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:  # nodes come and go
            self._capacity, self._looked = self._fitting(), now
        waiting = 0 if self.address is None else 1 + self._capacity // 8  # so that a cluster that grows knows it should
        return running < self._capacity + waiting

    def _fitting(self) -> int:
        total, needs = self.ray.cluster_resources(), self._smallest
        parts = [total.get("CPU", 0) / needs.cpus if needs.cpus else 1e6]
        if needs.gpus:
            parts.append(total.get("GPU", 0) / needs.gpus)
        return max(1, int(min(parts)))

    def submit(self, job: Job) -> None:
        needs = job.needs
        task = self._run.options(
            name=job.name, num_cpus=needs.cpus, num_gpus=needs.gpus, memory=int(round(needs.memory, 1) * 1e9)
        )
        self._refs[task.remote(job, self.orders, self.train)] = job

    def wait(self, seconds: float) -> list[tuple[str, Outcome]]:
        if not self._refs:
            time.sleep(seconds)
            return []
        ready, others = self.ray.wait(list(self._refs), num_returns=1, timeout=seconds)
        if others:
            ready += self.ray.wait(others, num_returns=len(others), timeout=0)[0]
        return [(self._refs[ref].folder, self._outcome(ref)) for ref in ready if ref in self._refs]

    def _outcome(self, ref: Any) -> Outcome:
        errors = self.ray.exceptions
        del self._refs[ref]
        try:
            found: Outcome = self.ray.get(ref)
            return found
        except errors.TaskCancelledError:
            return Outcome("stopped")
        except errors.RayTaskError as error:
            if "KeyboardInterrupt" in str(error):
                return Outcome("stopped")
            return Outcome("failed", _reason(error), str(error)[-2000:])
        except errors.RayError as error:  # the worker, its node or its memory is gone, not the run
            return Outcome("lost", f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")

    def stop(self) -> list[tuple[str, Outcome]]:
        """Ask every run to save and stop, and wait until it has."""
        for ref in self._refs:
            self.ray.cancel(ref)  # Ctrl-C in the worker's main thread, where the training loop waits for it
        ended, end = [], time.monotonic() + _SAVE_SECONDS
        while self._refs and time.monotonic() < end:
            ended += self.wait(1.0)
        return ended

    def close(self) -> None:
        self.ray.shutdown()

    # ---- before the first run ----------------------------------------------------------------------------------

    def _require_nodes(self) -> None:
        """Every node has this version of cic and sees the storage."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        check = self.ray.remote(num_cpus=0, max_retries=0)(check_node)
        asked = {}
        for node in self.ray.nodes():
            if node["Alive"]:
                here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                task = check.options(scheduling_strategy=here)
                asked[task.remote(self.orders, __version__)] = f"the node {node['NodeManagerHostname']}"
        for ref, name in asked.items():
            try:
                problem = self.ray.get(ref, timeout=_NODE_SECONDS)
            except self.ray.exceptions.GetTimeoutError:
                problem = f"{name} does not answer within {_NODE_SECONDS:.0f} s: look at it with `ray status`"
            except self.ray.exceptions.RayError as error:
                problem = f"{name} cannot take part: {_reason(error)}"
            if problem:
                raise UserError(problem)

    def _require_fit(self, jobs: Sequence[Job]) -> None:
        """Some node is large enough for each run; a cluster may still get one."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        for needs in {job.needs for job in jobs}:
            wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory * 1e9}
            if not any(all(node.get(name, 0) >= value for name, value in wanted.items()) for node in nodes):
                text = f"no node has what a run needs: {needs.cpus:g} CPUs, {needs.gpus:g} GPUs, {needs.memory:.1f} GB"
                if self.address is None:
                    raise UserError(f"{text}; change it with --cpus, --gpus and --memory")
                print(f"cic: {text}; those runs wait for such a node", file=sys.stderr)


def _reason(error: Exception) -> str:
    if "No module named 'cic" in str(error):
        return f"it lacks the package cic: install it on every node (pip install 'cic[sweep]=={__version__}')"
    cause = getattr(error, "cause", None) or error
    return str(cause).strip().splitlines()[-1]


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def connect(address: str | None, cpus: int) -> None:
    """Start Ray on this machine, or join a cluster."""
    import ray

    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, object_store_memory=_OBJECT_STORE, **quiet)
        return
    _require_reachable(address)
    try:
        ray.init(address=address, **quiet)
    except Exception as error:  # Ray has many
        raise UserError(f"cannot join the Ray cluster at {address}: {str(error).strip().splitlines()[0]}") from None


def _require_reachable(address: str) -> None:
    """Ray itself would try for minutes."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise UserError(f'the address of a Ray cluster is HOST:PORT or auto, not "{address}"')
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
        raise UserError(
            f"no Ray cluster at {address} ({why}): is `ray start --head` running there, and the port open?"
        ) from None
    asked = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False)
        healthy, said = answer.returncode == 0, answer.stderr
    except subprocess.TimeoutExpired:
        healthy, said = False, ""
    if "AuthenticationError" in said:
        raise UserError(
            f"the Ray cluster at {address} wants its token: export RAY_AUTH_MODE=token, with its token file here"
        )
    if "Version mismatch" in said:
        raise UserError(f"the Ray cluster at {address} has another version of Ray or Python: install the same here")
    if not healthy:
        raise UserError(
            f"what listens at {address} is no Ray head that answers: give the address that `ray start` said"
        )
