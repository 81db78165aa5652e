"""What a worker does: take a run's lease, train it from where it is, and say how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from cic import __version__
from cic.core.errors import Interrupted, UserError
from cic.sweep.jobs import Job
from cic.sweep.leases import Heartbeat, take
from cic.sweep.mirror import Mirror
from cic.sweep.scheduler import Outcome
from cic.sweep.storage import FolderStorage, Storage, UrlStorage, open_storage

LOG = "log.txt"
_LINES = 12
Train = Callable[[Job, Path, "Path | None"], None]


@dataclass(frozen=True)
class Orders:
    """What is the same for all runs of a sweep."""

    where: str
    """The storage."""
    marker: str
    """A file there that the sweep has written: who does not see it sees another storage."""
    owner: str
    lease: float
    command: tuple[str, ...]
    """As it was typed, for the record in each run."""


def execute(job: Job, orders: Orders, train: Train | None = None) -> Outcome:
    """One attempt at a run."""
    storage = open_storage(orders.where)
    if not storage.exists(orders.marker):
        raise UserError(unseen(orders.where))
    if storage.exists(f"{job.folder}/result.json"):
        return Outcome("done")
    lease = take(storage, job.folder, orders.owner, orders.lease)
    if lease is None:
        return Outcome("held")
    sys.argv = list(orders.command)
    try:
        with Heartbeat(lease, _abandon):
            if storage.exists(f"{job.folder}/result.json"):  # done between our look and our lease
                return Outcome("done")
            return _attempt(job, storage, train or train_run)
    finally:
        with contextlib.suppress(Exception):  # the storage stumbles: the lease will expire
            lease.release()


def unseen(where: str) -> str:
    """What is wrong with a storage that only the sweep itself sees."""
    return (
        f"{_node()} does not see the sweep's storage {where}: give a folder that all nodes share, "
        "or a URL such as s3://bucket/sweep"
    )


def _node() -> str:
    return f"the node {socket.gethostname()}"


def _attempt(job: Job, storage: Storage, train: Train) -> Outcome:
    with _workspace(job, storage) as (path, source):
        _wait_for_lock(path)
        with _logged(path / LOG):
            try:
                train(job, path, source)
                return Outcome("done")
            except Interrupted:
                return Outcome("stopped")
            except UserError as error:
                print(f"cic: {error}", file=sys.stderr)
                message = str(error)
            except Exception as error:
                traceback.print_exc()
                message = f"{type(error).__name__}: {error}"
        _note_failure(path, message)
        lines = (path / LOG).read_text(errors="replace").splitlines()
        return Outcome("failed", message, "\n".join(lines[-_LINES:]))


def train_run(job: Job, path: Path, source: Path | None) -> None:
    """Begin, or go on from the last checkpoint."""
    from cic.api import finetune, pretrain, resume

    config = dict(job.config)
    if (path / "config.json").exists():
        resume(path)
    elif job.kind == "pretrain":
        pretrain(config.pop("domain"), config.pop("objective", "cic"), out=path, **config)
    else:
        finetune(source, config.pop("task"), out=path, **config)


def _note_failure(path: Path, message: str) -> None:
    """A run that failed before its loop began has not said so itself."""
    if FolderStorage(path).read_object("status.json").get("state") != "failed":
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        status = {"state": "failed", "step": 0, "message": message, "updated": now}
        (path / "status.json").write_text(json.dumps(status))


@contextlib.contextmanager
def _workspace(job: Job, storage: Storage) -> Iterator[tuple[Path, Path | None]]:
    """The folder in which the run trains, and that of its pre-training."""
    outside = Path(job.source) if job.outside and job.source else None
    if isinstance(storage, FolderStorage):
        path = storage.path / job.folder
        path.mkdir(parents=True, exist_ok=True)
        yield path, outside or (storage.path / job.source if job.source else None)
        return
    assert isinstance(storage, UrlStorage)
    with tempfile.TemporaryDirectory(prefix="cic-") as scratch:
        path, source = Path(scratch, job.folder), outside
        path.mkdir()
        if job.source and not outside:
            source = Path(scratch, job.source)
            Mirror(storage, job.source, source).pull_weights()
        mirror = Mirror(storage, job.folder, path)
        mirror.pull()
        with mirror.kept_up():
            yield path, source


@contextlib.contextmanager
def _logged(path: Path) -> Iterator[None]:
    """What the run says goes to its log; a resumed one adds to it."""
    with open(path, "a", buffering=1) as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        yield


def _wait_for_lock(path: Path, seconds: float = 30.0) -> None:
    """The run's last owner may need a moment to die, for example when the node around it was killed."""
    from cic.runs.folder import Run

    end = time.monotonic() + seconds
    while (path / "config.json").exists():
        run = Run(path)
        try:
            run.lock()
            return
        except UserError:
            if time.monotonic() > end:
                return  # the run itself will say it
            time.sleep(0.2)
        finally:
            run.unlock()


def _abandon() -> None:
    """Somebody else has the run now: whatever this process would still write could harm it."""
    print(
        "cic: this run's lease was taken over while this process slept; stopping at once", file=sys.stderr, flush=True
    )
    os._exit(1)


def check_node(orders: Orders, version: str) -> str | None:
    """What a node lacks for a sweep; asked of each before it begins."""
    if version != __version__:
        return f"{_node()} has cic {__version__}, the sweep {version}: install the same version everywhere"
    return None if open_storage(orders.where).exists(orders.marker) else unseen(orders.where)
