"""The worker: start or resume one run in its folder, and return how it ended."""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from cic import __version__
from cic.core.errors import Interrupted, UserError
from cic.core.imports import import_first
from cic.runs.names import SWEEP_LOCK, SWEEP_LOG
from cic.runs.untrusted import check_folder, read_object
from cic.sweep.remote_run import RemoteRun
from cic.sweep.specs import RunSpec
from cic.sweep.store import Store

_LINES = 12


@dataclass(frozen=True)
class RunResult:
    """How an attempt at a run ended."""

    state: Literal["done", "failed", "blocked", "locked", "stopped"]
    """`blocked`: a dependency failed. `locked`: another worker has the run. `stopped`: it was saved on request."""
    message: str = ""
    log: str = ""
    """The last lines of the log of a failed run."""


@dataclass(frozen=True)
class SweepContext:
    """What all runs of a sweep have in common."""

    where: str
    """The store."""
    marker: str
    """A file that the driver has written to the store. A node that does not see it sees another store."""
    driver: str
    """An identifier of the driver."""
    command: tuple[str, ...]
    """The command line, for the record in each run."""
    imports: tuple[tuple[str, str | None], ...] = ()
    """Modules by name, and files by path with their content."""


def run_one(context: SweepContext, spec: RunSpec, *dependencies: RunResult) -> RunResult:
    """Start or resume a run. On Ray, the dependencies are object references to the results of other calls.

    The call is idempotent: a finished run is left alone, and a lock prevents two workers from executing the same run.
    """
    for dependency in dependencies:
        if dependency.state != "done":
            return dependency if dependency.state in ("locked", "stopped") else RunResult("blocked")
    store = Store(context.where)
    if store.read(context.marker) is None:
        raise UserError(_unseen(context.where))
    if is_finished(store, spec):
        return RunResult("done")
    try:
        with _local_folder(context, store, spec) as path:
            if path is None:
                return RunResult("locked")
            if is_finished(store, spec):  # by another worker, before the lock was taken
                return RunResult("done")
            return _train(context, store, spec, path)
    except UserError as error:
        return RunResult("failed", str(error))


def is_finished(store: Store, spec: RunSpec) -> bool:
    """Return whether a run has a result. An empty or damaged file does not count: resuming the run rewrites it."""
    return store.read_object(f"{spec.folder}/result.json") is not None


# ---- the folder ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _local_folder(context: SweepContext, store: Store, spec: RunSpec) -> Iterator[Path | None]:
    """Yield the folder in which the run trains, locked; None if another worker has it."""
    if store.folder is None:
        with _scratch_folder(context, store, spec) as scratch:
            yield scratch
        return
    path = store.folder / spec.folder
    if path.is_symlink():
        raise UserError(f"{path} is a link: a sweep writes to folders of its own, so remove it")
    path.mkdir(parents=True, exist_ok=True)
    check_folder(path)
    lock = FileLock(path / SWEEP_LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield None
        return
    try:
        yield path
    finally:
        lock.release()


@contextlib.contextmanager
def _scratch_folder(context: SweepContext, store: Store, spec: RunSpec) -> Iterator[Path | None]:
    with tempfile.TemporaryDirectory(prefix="cic-") as scratch:
        path = Path(scratch, spec.folder)
        path.mkdir()
        remote = RemoteRun(store, spec.folder, path)
        if not remote.lock(context.driver):
            yield None
            return
        try:
            remote.download()
            with remote.uploading(context.driver):
                yield path
        finally:
            with contextlib.suppress(Exception):  # the lock expires
                remote.unlock()


def _source_folder(store: Store, spec: RunSpec, path: Path) -> Path | None:
    """Return the folder of the pre-training. A run that has started has its own copy of what it needs."""
    if spec.source is None or (path / "config.json").exists():
        return None
    if spec.outside:
        return Path(spec.source)
    source = path.parent / spec.source
    if store.folder is None:
        RemoteRun(store, spec.source, source).download()
    return source


# ---- training --------------------------------------------------------------------------------------------------


def _train(context: SweepContext, store: Store, spec: RunSpec, path: Path) -> RunResult:
    sys.argv = list(context.command)
    source = _source_folder(store, spec, path)
    with _logged(path / SWEEP_LOG):
        try:
            import_shipped(context.imports)
            train_run(spec, path, source)
            return RunResult("done")
        except Interrupted:
            return RunResult("stopped")
        except UserError as error:
            print(f"cic: {error}", file=sys.stderr)
            message = str(error)
        except Exception as error:
            traceback.print_exc()
            message = f"{type(error).__name__}: {error}"
    _write_failure(path, message)
    lines = (path / SWEEP_LOG).read_text(errors="replace").splitlines()
    return RunResult("failed", message, "\n".join(lines[-_LINES:]))


def train_run(spec: RunSpec, path: Path, source: Path | None) -> None:
    """Start a run, or resume it from its last checkpoint."""
    from cic.api import finetune, pretrain, resume
    from cic.runs.folder import Run

    config = dict(spec.config)
    name = "domain" if spec.kind == "pretrain" else "task"
    if (path / "config.json").exists():
        resume(path, trust=Run(path).config.get(name) == config[name])  # the user's plan names the environment
    elif spec.kind == "pretrain":
        pretrain(config.pop("domain"), config.pop("objective", "cic"), out=path, **config)
    else:
        finetune(source, config.pop("task"), out=path, **config)


def import_shipped(imports: tuple[tuple[str, str | None], ...]) -> None:
    """Import the user's modules and files. A file that this node does not have is written from its content."""
    for name, content in imports:
        path = Path(name)
        if content is None or (path.is_file() and path.read_text() == content):
            import_first([name])
        else:
            import_first([_write_module(path.name, content)])


@lru_cache
def _write_module(name: str, content: str) -> str:
    path = Path(tempfile.mkdtemp(prefix="cic-import-"), name)
    path.write_text(content)
    return str(path)


@contextlib.contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Append the output of the run to its log."""
    try:
        log = open(path, "a", buffering=1)  # noqa: SIM115  an error while the run trains is not one of the log
    except OSError as error:
        raise UserError(f"cannot write to {path}: {error.strerror}") from None
    with log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        yield


def _write_failure(path: Path, message: str) -> None:
    """Write the status of a run that failed before its training started."""
    from cic.runs.storage import write_json

    status = read_object(path / "status.json")
    if isinstance(status, str) or status.get("state") != "failed":
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        write_json(path / "status.json", {"state": "failed", "step": 0, "message": message, "updated": now})


# ---- before the first run --------------------------------------------------------------------------------------


def check_node(context: SweepContext, version: str) -> str | None:
    """Return what this node lacks for a sweep."""
    if version != __version__:
        return f"{_node()} has cic {__version__}, the driver {version}: install the same version everywhere"
    return _unseen(context.where) if Store(context.where).read(context.marker) is None else None


def _unseen(where: str) -> str:
    return (
        f"{_node()} does not see the sweep's storage {where}: give a folder that all nodes share, "
        "or a URL such as s3://bucket/sweep"
    )


def _node() -> str:
    return f"the node {socket.gethostname()}"
