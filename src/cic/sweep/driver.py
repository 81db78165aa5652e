"""The driver: execute a plan with Ray, or one run after another in this process."""

from __future__ import annotations

import contextlib
import secrets
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cic.core.errors import Interrupted, UserError
from cic.core.imports import imported
from cic.runs.untrusted import check_tree
from cic.sweep.command import SweepOptions
from cic.sweep.plan import Plan
from cic.sweep.progress import read_progress, show_progress
from cic.sweep.specs import RunSpec, digest, write_specs
from cic.sweep.store import SWEEP, Store
from cic.sweep.worker import RunResult, SweepContext, is_finished, run_one

_PAUSE = 2.0
"""Seconds between two looks at a run that another worker has."""


@dataclass(frozen=True)
class SweepResult:
    """How a sweep ended."""

    done: list[RunSpec]
    failed: list[tuple[RunSpec, RunResult]]
    blocked: list[RunSpec]
    """Runs that were not started because a dependency failed."""

    def summary(self, where: str) -> str:
        count = len(self.done) + len(self.failed) + len(self.blocked)
        lines = [f"{len(self.done)} of {count} runs done, {len(self.failed)} failed: {where}"]
        for spec, result in self.failed:
            lines.append(f"failed: {spec.name} ({where}/{spec.folder}): {result.message}")
            lines += [f"    {line}" for line in result.log.splitlines()]
        if self.blocked:
            names = ", ".join(spec.name for spec in self.blocked)
            lines.append(f"not started, because a run on which they depend failed: {names}")
        return "\n".join(lines)


def run_plan(plan: Plan, options: SweepOptions, specs: Sequence[RunSpec] | None = None) -> SweepResult:
    """Execute the unfinished runs of a plan. After an interruption, the same call continues.

    Args:
        plan: The runs.
        options: Where to execute the plan.
        specs: The resolved runs of the plan, if their resources were changed.
    """
    from cic.sweep.resolve import resolve

    specs = resolve(plan) if specs is None else specs
    if not specs:
        raise UserError("the plan has no runs: add runs to it")
    store = Store(options.out)
    driver = secrets.token_hex(4)
    context = SweepContext(store.where, f"{SWEEP}/.seen-{driver}", driver, tuple(sys.argv), _imports())
    _prepare(store, context, plan, specs)
    try:
        results = {spec.folder: RunResult("done") for spec in specs if is_finished(store, spec)}
        if len(results) < len(specs):
            _say(f"{len(specs) - len(results)} of {len(specs)} runs to do in {store.where}", options)
            _execute(context, store, specs, results, options)
    finally:
        store.remove(context.marker)
    return _summarise(specs, results)


def _imports() -> tuple[tuple[str, str | None], ...]:
    """Return what the user imported; files with their content, for nodes that do not have them."""
    return tuple((name, Path(name).read_text() if Path(name).is_file() else None) for name in imported())


def _prepare(store: Store, context: SweepContext, plan: Plan, specs: Sequence[RunSpec]) -> None:
    if store.folder is not None:
        check_tree(store.folder / SWEEP)
    try:
        store.write(context.marker, b"")
        store.write(f"{SWEEP}/plan-{digest(specs)}.json", plan.to_text().encode())
        write_specs(store, specs)
    except Exception as error:  # each file system has its own exceptions
        raise UserError(f"cannot write to {store.where}: {getattr(error, 'strerror', None) or error}") from None


def _execute(
    context: SweepContext, store: Store, specs: Sequence[RunSpec], results: dict[str, RunResult], options: SweepOptions
) -> None:
    executor = _make_executor(context, [spec for spec in specs if spec.folder not in results], options)
    display = show_progress(lambda: read_progress(store, specs, results), options.quiet)
    try:
        with _signals(), display as update:  # after Ray has installed its own signal handlers
            submit_all(executor, specs, results, update)
    except KeyboardInterrupt:
        left = len(specs) - len(results)
        raise Interrupted(f"stopped and saved, {left} runs are left; the same command continues") from None
    finally:
        executor.close()


def submit_all(
    executor: Executor,
    specs: Sequence[RunSpec],
    results: dict[str, RunResult],
    update: Callable[[], None] = lambda: None,
) -> None:
    """Submit the runs in order, each with the handles of its dependencies, and collect their results.

    A run that another worker has is submitted again later. `update` is called after each result.
    """
    handles: dict[str, Any] = dict(results)
    waiting = deque(spec for spec in specs if spec.folder not in results)
    running: dict[str, RunSpec] = {}
    locked = 0
    try:
        while waiting or running:
            while waiting and len(running) < executor.limit:
                spec = waiting.popleft()
                handles[spec.folder] = executor.submit(spec, [handles[folder] for folder in spec.after])
                running[spec.folder] = spec
            for folder in executor.wait({folder: handles[folder] for folder in running}):
                spec, result = running.pop(folder), executor.result(handles[folder])
                if result.state in ("locked", "stopped"):
                    waiting.append(spec)
                    locked += 1
                else:
                    results[folder], locked = result, 0
                    update()
            if locked and locked >= len(waiting):
                time.sleep(_PAUSE)
                locked = 0
    except KeyboardInterrupt:
        for folder, result in executor.stop({folder: handles[folder] for folder in running}).items():
            if result.state not in ("locked", "stopped"):
                results[folder] = result
        raise


class Executor:
    """Executes runs in this process, one after another. Ctrl-C reaches the run, which saves and stops."""

    limit: float = 1
    """Runs that are submitted at the same time."""

    def __init__(self, context: SweepContext) -> None:
        self.context = context

    def submit(self, spec: RunSpec, dependencies: Sequence[Any]) -> Any:
        """Start a run. Return a handle, which other runs take as a dependency."""
        try:
            result = run_one(self.context, spec, *dependencies)
        except Exception as error:  # of the store; the run itself returns its errors
            return RunResult("failed", f"{type(error).__name__}: {error}")
        if result.state == "stopped":
            raise KeyboardInterrupt
        return result

    def wait(self, handles: dict[str, Any]) -> list[str]:
        """Return the folders of runs that have ended, after a moment at the latest."""
        return list(handles)

    def result(self, handle: Any) -> RunResult:
        found: RunResult = handle
        return found

    def stop(self, handles: dict[str, Any]) -> dict[str, RunResult]:
        """Let all runs save and stop. Return the results of those that have ended."""
        return {}

    def close(self) -> None:
        pass


def _make_executor(context: SweepContext, specs: Sequence[RunSpec], options: SweepOptions) -> Executor:
    if find_spec("ray") is None:
        if options.address is not None:
            raise UserError("`address` needs Ray: pip install 'cic[sweep]'")
        _say("one run after another in this process; `pip install 'cic[sweep]'` executes runs in parallel", options)
        return Executor(context)
    if options.slots == 1 and options.address is None:
        return Executor(context)
    from cic.sweep.ray_executor import RayExecutor

    return RayExecutor(context, specs, options)


def _summarise(specs: Sequence[RunSpec], results: dict[str, RunResult]) -> SweepResult:
    ended = SweepResult([], [], [])
    states: dict[str, str] = {}
    for spec in specs:  # dependencies come first; on Ray, a lost dependency is also the error of its dependents
        result = results[spec.folder]
        blocked = any(states[folder] != "done" for folder in spec.after)
        states[spec.folder] = "blocked" if blocked and result.state != "done" else result.state
        if states[spec.folder] == "done":
            ended.done.append(spec)
        elif blocked:
            ended.blocked.append(spec)
        else:
            ended.failed.append((spec, result))
    return ended


def _say(text: str, options: SweepOptions) -> None:
    if not options.quiet:
        print(f"cic: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C."""
    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    try:
        before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    except ValueError:  # not in the main thread, where Python allows no handlers
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
