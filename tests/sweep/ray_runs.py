"""What workers of the tests do instead of training; a module of its own, so that they can import it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from cic.sweep.jobs import Job
from cic.sweep.work import train_run


def fail_one(job: Job, path: Path, source: Path | None) -> None:
    """Seed 0 always fails."""
    if job.kind == "pretrain" and job.config["seed"] == 0:
        raise RuntimeError("this one always fails")
    train_run(job, path, source)


def crash_one(job: Job, path: Path, source: Path | None) -> None:
    """The worker of seed 0 dies, each time."""
    if job.config["seed"] == 0:
        os._exit(9)
    (path / "result.json").write_text("{}")


def note_gpu(job: Job, path: Path, source: Path | None) -> None:
    """Which GPU, and when."""
    began = time.time()
    time.sleep(1.5)
    found = {"gpu": os.environ.get("CUDA_VISIBLE_DEVICES"), "began": began, "ended": time.time()}
    (path / "result.json").write_text(json.dumps(found))
